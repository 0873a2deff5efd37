-- Batches of schedules on their way to another shard: in `leases` <batch> -> what was taken (takenbatch.lua), and
-- i<id> -> batch for each schedule, whose edits wait that long.
local function mark_of(id)
  return 'i' .. id
end

-- Of a schedule in a shard that drains: BUSY on its way, ABSENT when it has gone or never was here.
local function where_else(id, stored)
  if shard_state ~= 'draining' then
    return nil
  end
  if redis.call('HEXISTS', LEASES, mark_of(id)) == 1 then
    return 'BUSY'
  end
  return not stored and 'ABSENT' or nil
end
