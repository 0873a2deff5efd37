#!lua flags=allow-oom
--[[
  Drain the shard: it takes no new schedules, and the ones it has can be edited, deleted, claimed and settled until
  they have left. With a hold nothing more is claimed here for that long: schedules that some worker always holds come
  to rest, so that they can leave. Or close it: it is empty and stays so, and later callers must read the layout again;
  the caller has seen that no definition is left, which nothing can undo in a draining shard. Or open it again, if its
  layout has no former one.

  KEYS  then, to close it, its logs, as the caller knows them
  ARGV  layout, epoch, state (draining, closed or open), hold (us; absent: none), latest (us after now that no lease can end)
  Reply {} | {batch, {schedule ...}}: a batch that is moving, as `depart` replies; the caller must finish it
        | when closing: {closed}, or {moving} (a batch is moving), {points} (a worker holds some),
          {outcomes} (in no status yet), {dead}
  Error WRONGLAYOUT (also: closing a shard that does not drain)
]]
-- keys meta claims leases runs ledger logs
-- include shard
-- include fenced
-- include time
-- include moves
local FIRST_LOG = 7

local function what_is_left()
  if redis.call('HEXISTS', LEASES, BATCH) == 1 then
    return 'moving'
  end
  if redis.call('ZCOUNT', CLAIMS, '-inf', digits(server_time() + args.latest)) > 0 then
    return 'points'
  end
  if redis.call('XLEN', RUNS) > 0 or redis.call('HLEN', LEDGER) > 1 then -- beside the sentinel
    return 'outcomes'
  end
  local letters = redis.call('ZCARD', LOGS) - (#KEYS - FIRST_LOG + 1) -- logs that the caller does not know also count
  for k = FIRST_LOG, #KEYS do
    letters = letters + redis.call('XLEN', KEYS[k])
  end
  return letters > 0 and 'dead' or nil
end

if args.state == 'closed' then
  if shard_state ~= 'draining' then
    return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and cannot be closed')
  end
  local left = what_is_left()
  if left then
    return { left }
  end
end
redis.call('HSET', META, 'state', args.state, 'hold', digits(args.hold and server_time() + args.hold or 0))
if args.state == 'closed' then
  return { 'closed' }
end
local on_its_way = redis.call('HGET', LEASES, BATCH)
return on_its_way and { cmsgpack.unpack(on_its_way) } or {}
