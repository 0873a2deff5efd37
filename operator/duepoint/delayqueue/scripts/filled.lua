#!lua flags=allow-oom
--[[
  Nothing more will be brought into this shard; what is still under way to it comes too late.

  ARGV  layout, epoch
  Reply state before
]]
-- keys meta imported
-- include shard
-- include fenced
redis.call('HSET', META, 'state', 'open')
redis.call('UNLINK', IMPORTED)
return shard_state
