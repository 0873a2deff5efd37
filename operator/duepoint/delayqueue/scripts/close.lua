#!lua flags=allow-oom
--[[
  The shard is empty and stays so: whoever still comes is told to read the layout again. The caller
  has seen that no definition and no point is left, which nothing can undo in a draining shard.

  KEYS  1 meta  2 claims  3 runs  4 dead
  ARGV  layout, epoch
  Reply closed | moving (a batch is on its way) | outcomes (nobody has read them yet) | dead
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta
-- include moves

local META, CLAIMS, RUNS, DEAD = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refused = fenced_refusal(META)
if refused then
  return refused
end
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
