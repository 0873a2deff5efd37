#!lua
--[[
  Store the entry of a set: what may happen to its members (see heads.lua), and their target with its blob. A
  set whose members are being removed stays so. Called again it changes nothing.
  `tally` (absent: none) replaces the shard's counts of the set (runs.lua), if they are still as they were.

  KEYS  then lane
  ARGV  layout, epoch, lane, entry (text), blobs {from, to}: digest, blob pairs,
        tally {field, stored, wanted}
  Reply the entry that is stored now
  Error OOM
]]
-- keys meta heads blobs wake lane
-- include shard
-- include fenced
-- include wake
-- include texts

store_texts(BLOBS, args.blobs)
local field = args.lane
local stored, wanted = redis.call('HGET', META, field), args.entry
if stored and string.sub(stored, 1, 1) == 'd' then
  wanted = stored
end
redis.call('HSET', META, field, wanted)
redis.call('HSETNX', META, 'c' .. args.lane, 0)
redis.call('ZADD', LANE, '+inf', '')
local tally = args.tally
if tally and (redis.call('HGET', META, tally.field) or '') == tally.stored then
  redis.call('HSET', META, tally.field, tally.wanted)
end
announce_lane(args.lane, LANE)
return wanted
