#!lua flags=allow-oom
--[[
  What was exported elsewhere is here and can be claimed, all or nothing; the same batch again changes nothing.
  A schedule that is here already in the same or a newer generation keeps what it has; occurrences come only to
  a schedule that is here. Runs on a full server: what it stores is given back by `forget`.

  KEYS  then lanes and buckets
  ARGV  layout, incarnation, batch (position), blobs {from, to} of digest, blob pairs,
        schedules {{lane, lane key, bucket key, id, record, due, from, to}}: id and record
          positions (record 0: its definition came before), due in us (absent: no chain),
          {from, to} of member, due, record triples,
        sets {{lane, entry}} (absent: none): what the former shard knows of the sets among them
  Reply {imported schedules, imported occurrences} | {0, 0}
  Error WRONGLAYOUT (also: takes nothing in any more)
]]
-- keys meta heads blobs occ occrec wake imported
-- include shard
-- include time
-- include wake
-- include occurrences
-- include definition
-- include blobs

if shard_state ~= 'filling' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and takes nothing in')
end
local batch = ARGV[args.batch]
if redis.call('SISMEMBER', IMPORTED, batch) == 1 then
  return { 0, 0 }
end
local before, schedules, occurrences, key_of = shard_head(), 0, 0, {}

for _, set in ipairs(args.sets or {}) do
  redis.call('HSETNX', META, 's' .. set[1], set[2])
  redis.call('HSETNX', META, 'c' .. set[1], 0)
end

local function count_member(lane)
  if redis.call('HEXISTS', META, 's' .. lane) == 1 then
    redis.call('HINCRBY', META, 'c' .. lane, 1)
  end
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
  else
    count_member(lane)
  end
  redis.call('HSET', bucket, id, record)
  if due then
    redis.call('ZADD', lane_key, due, id .. version_of(record))
  end
  schedules = schedules + 1
end

store_blobs(args.blobs)
for _, schedule in ipairs(args.schedules) do
  local lane, lane_key, bucket, id = schedule[1], KEYS[schedule[2]], KEYS[schedule[3]], ARGV[schedule[4]]
  local from, to = schedule[7], schedule[8]
  if not key_of[lane] then
    key_of[lane] = lane_key
    redis.call('ZADD', lane_key, '+inf', '')
  end
  if schedule[5] > 0 then
    store(lane, lane_key, bucket, id, ARGV[schedule[5]], schedule[6])
  end
  if to > from and redis.call('HEXISTS', bucket, id) == 1 then
    for i = from, to, 3 do
      if add_occurrence(lane_key, ARGV[i + 1], ARGV[i], ARGV[i + 2]) then
        occurrences = occurrences + 1
      end
    end
  end
end
redis.call('SADD', IMPORTED, batch)
for lane, key in pairs(key_of) do
  refresh_head(lane, key)
end
announce_head(before, server_time())
return { schedules, occurrences }
