#!lua
--[[
  Many new schedules of one shard at once: definitions, blobs, chain points and the occurrences of
  open slots, all or nothing.
  Where something stands under one of the ids already, or the shard is being emptied, nothing is
  written and the caller is told which; those go by `upsert`, which compares.

  KEYS  1 meta  2 heads  3 blobs  4 wake  5 interned  6 occ  7 occrec  8... buckets and lanes
  ARGV  layout, epoch, incarnation, numbers {number ...}: those that stand in the records,
        blobs {from, to}: digest, blob pairs,
        buckets {{key, from, to}}: id, record pairs; key a position in KEYS, no id twice,
        lanes {{lane, key, from, to}}: due, member pairs of chains and occurrences,
        open {from, to}: member, record pairs of the occurrences
  Reply positions in ARGV of the ids that stand already; empty: everything is written
  Error UNINIT, WRONGLAYOUT, FENCED, OOM
]]
-- include meta
-- include time
-- include heads
-- include interned

local META, HEADS, BLOBS, WAKE, INTERNED, OCC, OCCREC = unpack(KEYS, 1, 7)
local refused = fenced_refusal(META)
if refused then
  return refused
end

local standing = {}
for _, bucket in ipairs(args.buckets) do
  local key, ids = KEYS[bucket[1]], {}
  for i = bucket[2], bucket[3], 2 do
    ids[#ids + 1] = ARGV[i]
  end
  for i, stored in ipairs(redis.call('HMGET', key, unpack(ids))) do
    if stored or shard_state == 'draining' then
      standing[#standing + 1] = bucket[2] + 2 * (i - 1)
    end
  end
end
if #standing > 0 then
  return standing
end
if not take_into_use(INTERNED, args.numbers) then
  return was_collected()
end

for i = args.blobs[1], args.blobs[2], 2 do
  if redis.call('HSETNX', BLOBS, ARGV[i], ARGV[i + 1]) == 0 then
    redis.call('HDEL', BLOBS, ':' .. ARGV[i]) -- it may have been marked as unused
  end
end
for _, bucket in ipairs(args.buckets) do
  redis.call('HSET', KEYS[bucket[1]], unpack(ARGV, bucket[2], bucket[3]))
end
if args.open[2] > args.open[1] then
  local entries = {}
  for i = args.open[1], args.open[2], 2 do
    entries[#entries + 1] = 0
    entries[#entries + 1] = ARGV[i]
  end
  redis.call('ZADD', OCC, unpack(entries))
  redis.call('HSET', OCCREC, unpack(ARGV, args.open[1], args.open[2]))
end
local before = shard_head(HEADS)
for _, lane in ipairs(args.lanes) do
  local key = KEYS[lane[2]]
  redis.call('ZADD', key, '+inf', '', unpack(ARGV, lane[3], lane[4]))
  refresh_head(HEADS, lane[1], key)
end
announce_head(HEADS, before, WAKE, server_time())
return standing
