#!lua flags=allow-oom
--[[
  Store a part of a batch, which can be claimed then; a part that has arrived already changes nothing. A schedule that
  is here in the same or a newer generation stays as it is; occurrences are stored only for a schedule that is here.
  Runs on a full server: `depart` then frees the same memory.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, batch (text), part (its number in the batch, from 1), kinds and blobs {from, to}: digest, text and
        digest, blob pairs that the records name,
        schedules {{lane, lane key, bucket key, id, record, due, from, to}}: id and record
          positions (record 0: it came with an earlier part), due in us (absent: no chain),
          {from, to} of member, due, record triples,
        sets {{lane, entry}}: the former shard's entries of the sets among them
  Reply OK
]]
-- keys meta heads texts blobs occ occrec wake
-- include shard
-- include fenced
-- include time
-- include wake
-- include occurrences
-- include definition
-- include texts

local batch, part = string.match(redis.call('HGET', META, 'arrived') or '', '^(%S+) (%d+)$')
if batch == args.batch and tonumber(part) >= args.part then
  return 'OK'
end
local before, key_of = shard_head(), {}

for _, set in ipairs(args.sets) do
  redis.call('HSETNX', META, set[1], set[2])
  redis.call('HSETNX', META, 'c' .. set[1], 0)
end

local function store(lane, lane_key, bucket, id, record, due)
  local stored = redis.call('HGET', bucket, id)
  if stored then
    local uid, generation = identity(stored)
    local new_uid, new_generation = identity(record)
    if uid ~= new_uid or generation >= new_generation then
      return
    end
    redis.call('ZREM', lane_key, id .. version_of(stored))
  elseif is_of_set(lane) then
    redis.call('HINCRBY', META, 'c' .. lane, 1)
  end
  redis.call('HSET', bucket, id, record)
  if due then
    redis.call('ZADD', lane_key, due, id .. version_of(record))
  end
end

store_texts(TEXTS, args.kinds)
store_texts(BLOBS, args.blobs)
for _, schedule in ipairs(args.schedules) do
  local lane, lane_key, bucket, id = schedule[1], KEYS[schedule[2]], KEYS[schedule[3]], ARGV[schedule[4]]
  if not key_of[lane] then
    key_of[lane] = lane_key
    redis.call('ZADD', lane_key, '+inf', '')
    if not is_of_set(lane) then
      redis.call('HSETNX', META, lane, '')
    end
  end
  if schedule[5] > 0 then
    store(lane, lane_key, bucket, id, ARGV[schedule[5]], schedule[6])
  end
  if redis.call('HEXISTS', bucket, id) == 1 then
    for i = schedule[7], schedule[8], 3 do
      add_occurrence(lane_key, ARGV[i + 1], ARGV[i], ARGV[i + 2])
    end
  end
end
redis.call('HSET', META, 'arrived', args.batch .. ' ' .. args.part)
for lane, key in pairs(key_of) do
  refresh_head(lane, key)
end
announce_head(before, server_time())
return 'OK'
