-- Schedules that are moving to another shard (depart.lua): `leases` has the batch in its own field, and i<id> for each
-- schedule, whose edits wait until it has moved.
local BATCH = 'batch'

local function mark_of(id)
  return 'i' .. id
end

-- For a schedule in a draining shard: BUSY while it is moving, ABSENT if it has moved or never was here.
local function where_else(id, stored)
  if shard_state ~= 'draining' then
    return nil
  end
  if redis.call('HEXISTS', LEASES, mark_of(id)) == 1 then
    return 'BUSY'
  end
  return not stored and 'ABSENT' or nil
end
