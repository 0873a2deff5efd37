#!lua flags=allow-oom
--[[
  The shard is empty and stays so: a later caller has to read the layout again. The caller has seen that no
  definition and no point is left, which nothing can undo in a draining shard.

  ARGV  layout, epoch
  Reply closed | moving (a batch is on its way) | outcomes (not read yet) | dead
  Error WRONGLAYOUT (also: does not drain)
]]
-- keys meta claims runs dead
-- include shard
-- include fenced
-- include members

if shard_state ~= 'draining' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and cannot be closed')
end
for _, id in ipairs(redis.call('ZRANGE', CLAIMS, 0, -1)) do
  if #id == MOVE_LENGTH then
    return 'moving'
  end
end
if redis.call('XLEN', RUNS) > 0 then
  return 'outcomes'
end
if redis.call('XLEN', DEAD) > 0 then
  return 'dead'
end
redis.call('HSET', META, 'state', 'closed')
return 'closed'
