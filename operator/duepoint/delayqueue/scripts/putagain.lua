#!lua flags=allow-oom
--[[
  Schedules are put again, in a shard in doubt or where their chain was lost. Chains whose first slots have run move on, or go where no
  slot is left; those that stand nowhere, or under a claim that does not exist, stand again; occurrences that have ended go, and those
  that the server has lost are back. What changed since the leader read it is left alone, and so is what a claim holds.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, lanes {{lane, key}},
        chains {{lane key, bucket, id, member, due that it was found with (false: it was lost), due}}: due absent: no slot is left,
        gone {{lane key, member}}, lost {{lane key, due, member, record}},
        started {{bucket, id, count}}: so many runs of a schedule with maxRuns have started at least
  Reply {changed}
]]
-- keys meta heads occ occrec wake claims
-- include shard
-- include fenced
-- include time
-- include wake
-- include occurrences
-- include definition

local before, changed = shard_head(), 0

for _, lost in ipairs(args.lost) do
  if add_occurrence(KEYS[lost[1]], lost[2], ARGV[lost[3]], ARGV[lost[4]]) then
    changed = changed + 1
  end
end
for _, started in ipairs(args.started) do
  local bucket, id = KEYS[started[1]], ARGV[started[2]]
  local record = counting_record(bucket, id)
  if record and started_of(record) < started[3] then
    redis.call('HSET', bucket, id, with_started(record, started[3]))
  end
end

-- Whether the chain waits, or belongs to a claim.
local function stands(score)
  local token = score and score - CLAIMED
  return token and (token < 0 or redis.call('ZCOUNT', CLAIMS, digits(token), digits(token)) > 0)
end

local function is_as_found(score, found, bucket, id, member)
  if found then
    return score == found
  end -- of a draining shard a chain goes before its definition does
  return shard_state ~= 'draining' and not stands(score) and is_armed_as(redis.call('HGET', bucket, id), id, member)
end

for _, chain in ipairs(args.chains) do
  local lane_key, bucket, id, member = KEYS[chain[1]], KEYS[chain[2]], ARGV[chain[3]], ARGV[chain[4]]
  if is_as_found(tonumber(redis.call('ZSCORE', lane_key, member) or 'nil'), chain[5], bucket, id, member) then
    if chain[6] then
      redis.call('ZADD', lane_key, chain[6], member)
    else
      redis.call('ZREM', lane_key, member)
      complete(bucket, id, member)
    end
    changed = changed + 1
  end
end
for _, gone in ipairs(args.gone) do
  local score = redis.call('ZSCORE', KEYS[gone[1]], ARGV[gone[2]])
  if score and tonumber(score) < CLAIMED then
    changed = changed + drop_occurrences(KEYS[gone[1]], { ARGV[gone[2]] })
  end
end
for _, lane in ipairs(args.lanes) do
  refresh_head(lane.lane, KEYS[lane.key])
end
announce_head(before, server_time())
return { changed }
