#!lua
--[[
  The shard knows the set, what may happen to its members (see heads.lua) and what to do for them. Its blob is there. A
  set whose members are being removed stays so. Called again it changes nothing.
  `tally` (absent: none) is what the shard has counted of the set (runs.lua), where it stands as it did.

  KEYS  then lane
  ARGV  layout, epoch, lane, entry (text), blobs {from, to}: digest, blob pairs,
        tally {field, stood, wanted}
  Reply the entry as it stands
  Error OOM
]]
-- keys meta heads blobs wake lane
-- include shard
-- include fenced
-- include time
-- include wake
-- include texts

store_texts(BLOBS, args.blobs)
local field = args.lane
local stood, wanted = redis.call('HGET', META, field), args.entry
if stood and string.sub(stood, 1, 1) == 'd' then
  wanted = stood
end
redis.call('HSET', META, field, wanted)
redis.call('HSETNX', META, 'c' .. args.lane, 0)
redis.call('ZADD', LANE, '+inf', '')
local tally = args.tally
if tally and (redis.call('HGET', META, tally.field) or '') == tally.stood then
  redis.call('HSET', META, tally.field, tally.wanted)
end
local before = shard_head()
refresh_head(args.lane, LANE)
announce_head(before, server_time())
return wanted
