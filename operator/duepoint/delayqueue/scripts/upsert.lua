#!lua
--[[
  The definition, its blob and its chain point are stored together or not at all. The same or an
  older generation of the same uid changes nothing; another uid under the id is told, not written.
  What stands there and cannot be read is made anew. With keep_chain the points, claims and retries
  of the schedule are left alone and a state that was reached meanwhile (completed) stays. The count
  of started runs never falls.

  KEYS  1 meta  2 heads  3 blobs  4 wake  5 lane  6 bucket  7 leases  8 interned
  ARGV  layout, epoch, incarnation, lane (number), keep_chain (bool), due (us, absent: no chain),
        id, record, chain (member), digest, blob: positions in ARGV,
        numbers {number ...}: those that stand in the record
  Reply APPLIED | UNCHANGED | COLLISION | CHANGED (keep_chain, but the chain is not as assumed)
        | BUSY (on its way to another shard) | ABSENT (the shard is draining: write it to the new one)
  Error UNINIT, WRONGLAYOUT, FENCED, OOM
]]
-- include meta
-- include time
-- include heads
-- include definition
-- include moves
-- include elsewhere
-- include interned

local META, HEADS, BLOBS, WAKE, LANE, BUCKET, LEASES, INTERNED = unpack(KEYS)
local refused = fenced_refusal(META)
if refused then
  return refused
end
local id, record, digest = ARGV[args.id], ARGV[args.record], ARGV[args.digest]
local stored = redis.call('HGET', BUCKET, id)
local elsewhere = where_else(LEASES, id, stored)
if elsewhere then
  return elsewhere
end
local is_known = stored and is_readable(stored)
if is_known then
  local uid, generation = identity(stored)
  local wanted_uid, wanted_generation = identity(record)
  if uid ~= wanted_uid then
    return 'COLLISION'
  end
  if wanted_generation <= generation then
    return 'UNCHANGED'
  end
  if counts_runs(stored) and counts_runs(record) then
    record = with_started(record, math.max(started_of(stored), started_of(record)))
  end
end
if args.keep_chain then
  if not is_known or version_of(stored) ~= version_of(record) then
    return 'CHANGED'
  end
  record = with_state(record, state_of(stored))
end

if not take_into_use(INTERNED, args.numbers) then
  return was_collected()
end
if redis.call('HSETNX', BLOBS, digest, ARGV[args.blob]) == 0 then
  redis.call('HDEL', BLOBS, ':' .. digest) -- it may have been marked as unused
end
redis.call('HSET', BUCKET, id, record)
if args.keep_chain then
  return 'APPLIED'
end

local before = shard_head(HEADS)
redis.call('ZADD', LANE, '+inf', '')
if stored then
  redis.call('ZREM', LANE, id .. version_of(stored))
end
if args.due then
  redis.call('ZADD', LANE, args.due, ARGV[args.chain])
end
refresh_head(HEADS, args.lane, LANE)
announce_head(HEADS, before, WAKE, server_time(), id, args.due)
return 'APPLIED'
