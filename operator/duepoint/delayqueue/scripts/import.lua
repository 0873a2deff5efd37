#!lua flags=allow-oom
--[[
  What was exported elsewhere is here and can be claimed, all or nothing; the same batch again
  changes nothing. A schedule that is here already in the same or a newer generation keeps what it
  has; occurrences come only to a schedule that is here. Runs on a full server: what it stores is
  given back by `forget`.

  KEYS  1 meta  2 heads  3 blobs  4 occ  5 occrec  6 wake  7 imported  8... lanes, buckets
  ARGV  layout, incarnation, batch (position), blobs {from, to} of digest, blob pairs,
        schedules {{lane, lane key, bucket key, id, record, due, from, to}}: id and record
          positions (record 0: its definition came before), due in us (absent: no chain),
          {from, to} of member, due, record triples
  Reply {imported schedules, imported occurrences} | {0, 0}
  Error UNINIT, WRONGLAYOUT (also: takes nothing in any more)
]]
-- include meta
-- include time
-- include heads
-- include definition

local META, HEADS, BLOBS, OCC, OCCREC, WAKE, IMPORTED = unpack(KEYS, 1, 7)
local refused = refusal(META)
if refused then
  return refused
end
if shard_state ~= 'filling' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and takes nothing in')
end
local batch = ARGV[args.batch]
if redis.call('SISMEMBER', IMPORTED, batch) == 1 then
  return { 0, 0 }
end

local before, schedules, occurrences, key_of = shard_head(HEADS), 0, 0, {}

local function is_news(bucket, id, record)
  local stored = redis.call('HGET', bucket, id)
  if not stored then
    return true, nil
  end
  local uid, generation = identity(stored)
  local new_uid, new_generation = identity(record)
  return uid == new_uid and generation < new_generation, stored
end

local function store(lane_key, bucket, id, record, due)
  local news, stored = is_news(bucket, id, record)
  if not news then
    return
  end
  if stored then
    redis.call('ZREM', lane_key, id .. version_of(stored))
  end
  redis.call('HSET', bucket, id, record)
  if due then
    redis.call('ZADD', lane_key, due, id .. version_of(record))
  end
  schedules = schedules + 1
end

for i = args.blobs[1], args.blobs[2], 2 do
  if redis.call('HSETNX', BLOBS, ARGV[i], ARGV[i + 1]) == 0 then
    redis.call('HDEL', BLOBS, ':' .. ARGV[i]) -- it may have been marked as unused
  end
end
for _, one in ipairs(args.schedules) do
  local lane_key, bucket, id = KEYS[one[2]], KEYS[one[3]], ARGV[one[4]]
  if not key_of[one[1]] then
    key_of[one[1]] = lane_key
    redis.call('ZADD', lane_key, '+inf', '')
  end
  if one[5] > 0 then
    store(lane_key, bucket, id, ARGV[one[5]], one[6])
  end
  if one[8] > one[7] and redis.call('HEXISTS', bucket, id) == 1 then
    for i = one[7], one[8], 3 do
      if redis.call('ZADD', lane_key, 'NX', ARGV[i + 1], ARGV[i]) == 1 then
        redis.call('ZADD', OCC, 0, ARGV[i])
        redis.call('HSET', OCCREC, ARGV[i], ARGV[i + 2])
        occurrences = occurrences + 1
      end
    end
  end
end
redis.call('SADD', IMPORTED, batch)
for lane, key in pairs(key_of) do
  refresh_head(HEADS, lane, key)
end
announce_head(HEADS, before, WAKE, server_time())
return { schedules, occurrences }
