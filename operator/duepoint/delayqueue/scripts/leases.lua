#!lua flags=no-writes
--[[
  Who holds what: the claims that end first, as their records say. Looking changes nothing.

  KEYS  1 meta  2 claims  3 leases
  ARGV  layout, count (claims at most)
  Reply {server time us, {id, expiry us, worker, attempts, {lane, {member, due ...} ...}} ...}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include record
-- include moves

local META, CLAIMS, LEASES = unpack(KEYS, 1, 3)
local HELD = 'held' -- what waits to be compared: no worker holds it
local refused = refusal(META)
if refused then
  return refused
end
local reply = { string.format('%.0f', server_time()) }
local ids = redis.call('ZRANGE', CLAIMS, '-inf', '(+inf', 'BYSCORE', 'LIMIT', 0, args.count, 'WITHSCORES')
for i = 1, #ids, 2 do
  local is_move = #ids[i] == MOVE_LENGTH -- to another shard: no worker holds it
  local packed, counted = unpack(redis.call('HMGET', LEASES, ids[i], ids[i] .. ':a'))
  local worker, by_lane = open_record(packed)
  local attempts = string.match(counted or '0', '%d+')
  if not is_move and ids[i] ~= HELD then
    reply[#reply + 1] = { ids[i], ids[i + 1], worker, tonumber(attempts), by_lane }
  end
end
return reply
