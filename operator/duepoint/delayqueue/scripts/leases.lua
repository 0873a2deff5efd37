#!lua flags=no-writes
--[[
  Who holds what: the claims that end first, as their records say. It changes nothing.

  ARGV  layout, count (claims at most)
  Reply {server time us, {id, expiry us, worker, attempts, {lane, {member, due ...} ...}} ...}
]]
-- keys meta claims leases
-- include shard
-- include time
-- include record
local reply = { digits(server_time()) }
local ids = redis.call('ZRANGE', CLAIMS, '-inf', '(+inf', 'BYSCORE', 'LIMIT', 0, args.count, 'WITHSCORES')
for i = 1, #ids, 2 do
  local packed, counted = unpack(redis.call('HMGET', LEASES, ids[i], ids[i] .. ':a'))
  local _, _, _, worker, by_lane = read_record(packed)
  reply[#reply + 1] = { ids[i], ids[i + 1], worker, tonumber(counted or 0), by_lane }
end
return reply
