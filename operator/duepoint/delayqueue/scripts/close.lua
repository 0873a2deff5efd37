#!lua flags=allow-oom
--[[
  The shard is empty and stays so: a later caller has to read the layout again. The caller has seen that no
  definition is left, which nothing can undo in a draining shard.

  ARGV  layout, epoch, latest (us after now that no lease can end)
  Reply closed | moving (a batch is on its way) | points (a worker holds some) | outcomes (not read yet) | dead
  Error WRONGLAYOUT (also: does not drain)
]]
-- keys meta claims leases runs dead
-- include shard
-- include fenced
-- include time
-- include moves

if shard_state ~= 'draining' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and cannot be closed')
end
if redis.call('HEXISTS', LEASES, BATCH) == 1 then
  return 'moving'
end
if redis.call('ZCOUNT', CLAIMS, '-inf', digits(server_time() + args.latest)) > 0 then
  return 'points'
end
if redis.call('XLEN', RUNS) > 0 then
  return 'outcomes'
end
if redis.call('XLEN', DEAD) > 0 then
  return 'dead'
end
redis.call('HSET', META, 'state', 'closed')
return 'closed'
