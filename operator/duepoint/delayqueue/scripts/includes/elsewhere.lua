-- Of a schedule in a shard that drains: BUSY on its way, ABSENT when it has gone or never was here.
local function where_else(leases, id, stored)
  if shard_state ~= 'draining' then
    return nil
  end
  if redis.call('HEXISTS', leases, mark_of(id)) == 1 then
    return 'BUSY'
  end
  return not stored and 'ABSENT' or nil
end
