-- Schedules on their way to another shard (depart.lua): in `leases` the batch under its field, and i<id> for each of
-- them, whose edits wait that long.
local BATCH = 'batch'

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
