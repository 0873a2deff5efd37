#!lua
--[[
  A dead letter becomes an occurrence that is due now, in one step: the letter is gone when its slot
  is in the queue, and not before. Asked again (the reply was lost) it finds no letter and changes
  nothing. The chain of the schedule is left alone.

  KEYS  1 meta  2 heads  3 occ  4 occrec  5 wake  6 lane  7 bucket  8 leases, of the schedule's shard
        9 dead  10 order  11 sums, of the letter's shard (`includes/letters.lua`)
  ARGV  layout, lane (number), letter (text: id of the entry); id, uid, member, record: positions in
        ARGV
  Reply APPLIED | UNCHANGED (this slot waits in the queue already; the letter stays)
        | GONE (no definition of this uid) | UNKNOWN (no such letter, or not any more)
        | BUSY (on its way to another shard) | ABSENT (not in this draining shard)
  Error UNINIT, WRONGLAYOUT, OOM
]]
-- include meta
-- include time
-- include heads
-- include definition
-- include moves
-- include elsewhere
-- include letters
-- include unburying

local META, HEADS, OCC, OCCREC, WAKE, LANE, BUCKET, LEASES, DEAD, ORDER, SUMS = unpack(KEYS)
local refused = refusal(META)
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
if #redis.call('XRANGE', DEAD, args.letter, args.letter) == 0 then
  return 'UNKNOWN'
end

local now, before = server_time(), shard_head(HEADS)
if redis.call('ZADD', LANE, 'NX', now, member) == 0 then
  return 'UNCHANGED'
end
redis.call('ZADD', OCC, 0, member)
redis.call('HSET', OCCREC, member, ARGV[args.record])
remove_letter(DEAD, ORDER, SUMS, args.letter)
refresh_head(HEADS, args.lane, LANE)
announce_head(HEADS, before, WAKE, now)
return 'APPLIED'
