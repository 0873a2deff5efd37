#!lua
--[[
  Occurrences of a stored definition are due now, in the order given, unless they are in the queue
  already. Points, claims and the chain of the schedule are left alone. Asked again (the reply was
  lost) it changes nothing, for as long as the occurrences wait.

  KEYS  1 meta  2 heads  3 occ  4 occrec  5 wake  6 lane  7 bucket  8 leases
  ARGV  layout, epoch, lane (number), id, uid: positions in ARGV,
        members {from, to} in ARGV, records {from, to}: of each member its record
  Reply {APPLIED | UNCHANGED (it is there) for each member} | GONE (no definition of this uid)
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
local id = ARGV[args.id]
local stored = redis.call('HGET', BUCKET, id)
local elsewhere = where_else(LEASES, id, stored)
if elsewhere then
  return elsewhere
end
if not stored or identity(stored) ~= ARGV[args.uid] then
  return 'GONE'
end

-- A microsecond apart, so that they are claimed in this order; the last one is due now, and none is
-- due before what was enqueued earlier, because a script takes longer than that for each of them.
local now, before = server_time(), shard_head(HEADS)
local from, count = args.members[1], args.members[2] - args.members[1] + 1
local reply, added, entries = {}, {}, {}
for i = 1, count do
  local member = ARGV[from + i - 1]
  reply[i] = 'UNCHANGED'
  if redis.call('ZADD', LANE, 'NX', now - count + i, member) == 1 then
    reply[i] = 'APPLIED'
    added[#added + 1], added[#added + 2] = 0, member
    entries[#entries + 1], entries[#entries + 2] = member, ARGV[args.records[1] + i - 1]
  end
end
if #added > 0 then
  redis.call('ZADD', OCC, unpack(added))
  redis.call('HSET', OCCREC, unpack(entries))
  refresh_head(HEADS, args.lane, LANE)
  announce_head(HEADS, before, WAKE, now)
end
return reply
