#!lua flags=allow-oom
--[[
  Nothing more will be brought into this shard; what is still under way to it comes too late.

  KEYS  1 meta  2 imported
  ARGV  layout, epoch
  Reply state before
]]
local META, IMPORTED = KEYS[1], KEYS[2]
-- include shard
-- include fenced
redis.call('HSET', META, 'state', 'open')
redis.call('UNLINK', IMPORTED)
return shard_state
