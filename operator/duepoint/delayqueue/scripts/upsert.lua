#!lua
--[[
  The definition, its blob, its chain point and the occurrences of its open slots are stored together
  or not at all. An occurrence that is in the queue already stays as it is. The same or an older
  generation of the same uid changes nothing, unless what is stored has the fingerprint that is to be
  replaced; another uid under the id is told, not written. What stands there and cannot be read is
  made anew. With keep_chain the points, claims and retries of the schedule are left alone and a state
  that was reached meanwhile (completed) stays; with a due besides, a chain that is due neither yet nor
  by `after` gets that one. Nothing is written while a claim holds the chain, or where the due has come
  since it was worked out: the chain may have moved on past it. The count of started runs never falls.

  KEYS  1 meta  2 heads  3 blobs  4 wake  5 lane  6 bucket  7 leases  8 interned  9 occ  10 occrec
  ARGV  layout, epoch, incarnation, lane (number), keep_chain (bool), due (us, absent: no chain),
        after (us, beside due: due is that of the first slot after this instant), id, record, chain (member), digest, blob: positions in ARGV,
        numbers {number ...}: those that stand in the record,
        open {from, to}: due, member, record of each occurrence; none with keep_chain,
        replaces (position; absent: nothing): the fingerprint that is to be replaced
  Reply APPLIED | UNCHANGED | COLLISION | CHANGED (keep_chain, but the chain is not as assumed)
        | HELD (the chain was to get another due, and a claim holds it or that due has come)
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

local META, HEADS, BLOBS, WAKE, LANE, BUCKET, LEASES, INTERNED, OCC, OCCREC = unpack(KEYS)
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
  local is_replaced = args.replaces and fingerprint_of(stored) == ARGV[args.replaces]
  if wanted_generation <= generation and not is_replaced then
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
local now, chain_due = server_time(), nil
if args.keep_chain and args.due then
  chain_due = tonumber(redis.call('ZSCORE', LANE, ARGV[args.chain]) or '-1')
  if chain_due >= CLAIMED then
    return 'HELD'
  end
  if chain_due <= math.max(now, args.after) then
    chain_due = nil
  elseif args.due <= now then
    return 'HELD'
  end
end

if not take_into_use(INTERNED, args.numbers) then
  return was_collected()
end
if redis.call('HSETNX', BLOBS, digest, ARGV[args.blob]) == 0 then
  redis.call('HDEL', BLOBS, ':' .. digest) -- it may have been marked as unused
end
redis.call('HSET', BUCKET, id, record)
local before = shard_head(HEADS)
if args.keep_chain then
  if chain_due then
    redis.call('ZADD', LANE, args.due, ARGV[args.chain])
    refresh_head(HEADS, args.lane, LANE)
    announce_head(HEADS, before, WAKE, now, id, args.due)
  end
  return 'APPLIED'
end

redis.call('ZADD', LANE, '+inf', '')
if stored then
  redis.call('ZREM', LANE, id .. version_of(stored))
end
if args.due then
  redis.call('ZADD', LANE, args.due, ARGV[args.chain])
end
for i = args.open[1], args.open[2], 3 do
  if redis.call('ZADD', LANE, 'NX', ARGV[i], ARGV[i + 1]) == 1 then
    redis.call('ZADD', OCC, 0, ARGV[i + 1])
    redis.call('HSET', OCCREC, ARGV[i + 1], ARGV[i + 2])
  end
end
refresh_head(HEADS, args.lane, LANE)
announce_head(HEADS, before, WAKE, now, id, args.due)
return 'APPLIED'
