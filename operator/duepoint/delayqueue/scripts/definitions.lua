#!lua flags=no-writes
--[[
  The definitions of many schedules at once, as they are now: one reply for what would be hundreds of commands,
  each of which costs a client more than the server.

  KEYS  then buckets
  ARGV  layout, fields (of `meta`, which say what the shard knows of sets); then for each bucket one value: chain members (12 bytes each), whose ids are wanted
  Reply {incarnation, {{record or false, ...}, ...}, {value of each field, false: none}}: records for each bucket, in
         the order of ARGV
]]
-- keys meta
-- include shard
-- include members
local sub, records = string.sub, {}
for i = 2, #KEYS do
  local chains, ids = ARGV[i], {}
  for first = 1, #chains, CHAIN_LENGTH do
    ids[#ids + 1] = sub(chains, first, first + ID_LENGTH - 1)
  end
  records[i - 1] = redis.call('HMGET', KEYS[i], unpack(ids))
end
local fields = args.fields
return { meta[3], records, #fields > 0 and redis.call('HMGET', META, unpack(fields)) or {} }
