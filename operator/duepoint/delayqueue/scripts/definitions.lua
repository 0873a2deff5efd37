#!lua flags=no-writes
--[[
  The definitions of many schedules at once, as they are now: one reply for what would be hundreds
  of commands, each of which costs a client more than the server.

  KEYS  1 meta  2... buckets
  ARGV  layout, ids {{from, to}}: for each bucket, positions of its ids
  Reply {incarnation, {{record or false, ...}, ...}}: for each bucket, in the order of ARGV
  Error UNINIT, WRONGLAYOUT
]]
-- include meta

local META = KEYS[1]
local refused = refusal(META)
if refused then
  return refused
end
local records = {}
for i, range in ipairs(args.ids) do
  records[i] = redis.call('HMGET', KEYS[1 + i], unpack(ARGV, range[1], range[2]))
end
return { redis.call('HGET', META, 'incarnation'), records }
