#!lua
--[[
  An occurrence of a stored definition is due now, unless it is in the queue already. Points, claims
  and the chain of its schedule are left alone. Asked again (the reply was lost) it changes nothing
  and answers the same, for as long as the occurrence waits.

  KEYS  1 meta  2 heads  3 occ  4 occrec  5 wake  6 lane  7 bucket  8 leases
  ARGV  layout, epoch, lane (number), id, uid, member, record: positions in ARGV
  Reply APPLIED | UNCHANGED (it is there) | GONE (no definition of this uid)
        | BUSY (on its way to another shard) | ABSENT (not in this draining shard: see the new one)
  Error UNINIT, WRONGLAYOUT, FENCED, OOM
]]
-- include meta
-- include time
-- include heads
-- include definition
-- include moves
-- include elsewhere

local META, HEADS, OCC, OCCREC, WAKE, LANE, BUCKET, LEASES = unpack(KEYS)
local refused = fenced_refusal(META)
if refused then
  return refused
end
local id, member = ARGV[args.id], ARGV[args.member]
local stored = redis.call('HGET', BUCKET, id)
local elsewhere = where_else(LEASES, id, stored)
if elsewhere then
  return elsewhere
end
if not stored or identity(stored) ~= ARGV[args.uid] then
  return 'GONE'
end

local now, before = server_time(), shard_head(HEADS)
if redis.call('ZADD', LANE, 'NX', now, member) == 0 then
  return 'UNCHANGED'
end
redis.call('ZADD', OCC, 0, member)
redis.call('HSET', OCCREC, member, ARGV[args.record])
refresh_head(HEADS, args.lane, LANE)
announce_head(HEADS, before, WAKE, now)
return 'APPLIED'
