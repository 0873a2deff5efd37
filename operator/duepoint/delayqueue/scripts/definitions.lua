#!lua flags=no-writes
--[[
  The definitions of many schedules at once, as they are now: one reply for what would be hundreds
  of commands, each of which costs a client more than the server.

  KEYS  1 meta  2... buckets
  ARGV  layout; then for each bucket one value: chain members (12 bytes each), whose ids are asked for
  Reply {incarnation, {{record or false, ...}, ...}}: for each bucket, in the order of ARGV
  Error UNINIT, WRONGLAYOUT
]]
-- include meta

local META = KEYS[1]
local refused = refusal(META)
if refused then
  return refused
end
local CHAIN_LENGTH, ID_LENGTH = 12, 8
local sub = string.sub
local records = {}
for i = 2, #KEYS do
  local members, ids = ARGV[i], {}
  for first = 1, #members, CHAIN_LENGTH do
    ids[#ids + 1] = sub(members, first, first + ID_LENGTH - 1)
  end
  records[i - 1] = redis.call('HMGET', KEYS[i], unpack(ids))
end
return { redis.call('HGET', META, 'incarnation'), records }
