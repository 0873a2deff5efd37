#!lua flags=allow-oom
--[[
  The shard drains: it takes no new schedules, and what it holds can be edited, deleted, claimed and settled until
  it has left. With a hold nothing more is claimed here for so long: the points of schedules that are always in
  some worker's hands come to rest, so that they can leave. Or, of a layout that stands alone, it is open again.

  ARGV  layout, epoch, state (draining or open), hold (us; 0: none)
  Reply {} | {batch, {schedule ...}}: what is on its way, as `depart` replies; nobody brings it but its finder
]]
-- keys meta leases
-- include shard
-- include fenced
-- include time
-- include moves
redis.call('HSET', META, 'state', args.state, 'hold', digits(args.hold > 0 and server_time() + args.hold or 0))
local on_its_way = redis.call('HGET', LEASES, BATCH)
return on_its_way and { cmsgpack.unpack(on_its_way) } or {}
