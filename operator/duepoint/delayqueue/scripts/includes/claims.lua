-- include rescoring
-- A claim is an id in `claims` (score = lease expiry). Its points have 2^52 + expiry as score, and `leases` has their
-- former state: <id> -> see record.lua; <id>:a -> how many owners have lost its points, <id>:g -> given back by a living
-- owner, <id>:q -> last settle number.
local function drop_claim(id)
  redis.call('ZREM', CLAIMS, id)
  redis.call('HDEL', LEASES, id, id .. ':a', id .. ':g', id .. ':q')
end
