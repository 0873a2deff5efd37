#!lua
--[[
  The shard takes no new schedules from here on; what it holds can be edited, deleted, claimed and settled until
  it has moved. With a hold nothing more is claimed here for so long: the points of schedules that are always in
  some worker's hands come to rest, so that they can move.

  ARGV  layout, epoch, hold (us; 0: none)
  Reply state before
  Error OOM
]]
-- keys meta
-- include shard
-- include fenced
-- include time
redis.call('HSET', META, 'state', 'draining', 'hold', digits(args.hold > 0 and server_time() + args.hold or 0))
return shard_state
