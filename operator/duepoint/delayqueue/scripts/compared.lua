#!lua flags=allow-oom
--[[
  What waited on a server that went back was compared: what has ended is gone, the rest is due at once, after
  `back`, so that no claim sets it aside again. A chain that waited as a whole stands where the caller says.
  A slot that waits for others is remembered until the shard is suspect no longer. What does not wait (any
  more) is left alone.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, runs_bytes, runs_age (ms), outcomes {from, to}: news of what has ended,
        cap (us, the caller's UTC: a server whose clock is ahead delays nothing), lanes {{lane, key}}, gone {{lane key, member}},
        due {{lane key, member, record}}: record a position, 0: it stays as it is,
        chains {{lane key, chain, due}}: the due is before now or not, but always after `back`,
        added {{lane key, member, record}}: occurrences that the server has lost; one that is there
          stays as it is,
        started {{bucket, id, count}}: so many runs of a schedule with maxRuns have started at least
  Reply {changed}
]]
-- keys meta heads occ occrec runs ran wake
-- include shard
-- include fenced
-- include time
-- include wake
-- include occurrences
-- include runs
-- include definition

local now, before, changed = server_time(), shard_head(), 0
local earliest = (tonumber(meta[6]) or 0) + 1
local at_once = digits(math.max(math.min(now, args.cap), earliest))

local function waits(lane_key, member)
  local score = redis.call('ZSCORE', lane_key, member)
  return score and tonumber(score) == CLAIMED + HELD_TOKEN
end

local function move(lane_key, member, due)
  if not waits(lane_key, member) then
    return false
  end
  redis.call('ZADD', lane_key, 'XX', due, member)
  changed = changed + 1
  return true
end

for _, lost in ipairs(args.added) do
  if add_occurrence(KEYS[lost[1]], at_once, ARGV[lost[2]], ARGV[lost[3]]) then
    changed = changed + 1
  end
end
for _, gone in ipairs(args.gone) do
  if waits(KEYS[gone[1]], ARGV[gone[2]]) then
    changed = changed + drop_occurrences(KEYS[gone[1]], { ARGV[gone[2]] })
  end
end
local queued = {}
for _, due in ipairs(args.due) do
  local member = ARGV[due[2]]
  if move(KEYS[due[1]], member, at_once) then
    if due[3] > 0 then
      redis.call('HSET', OCCREC, member, ARGV[due[3]])
    end
    if string.byte(member, KIND_POSITION) == QUEUED then
      queued[#queued + 1] = member
    end
  end
end
if #queued > 0 then
  redis.call('HSET', META, 'compared', (redis.call('HGET', META, 'compared') or '') .. table.concat(queued))
end
for _, started in ipairs(args.started) do
  local bucket, id = KEYS[started[1]], ARGV[started[2]]
  local record = counting_record(bucket, id)
  if record and started_of(record) < started[3] then
    redis.call('HSET', bucket, id, with_started(record, started[3]))
  end
end
for _, chain in ipairs(args.chains) do
  move(KEYS[chain[1]], ARGV[chain[2]], math.max(chain[3], earliest))
end
for _, lane in ipairs(args.lanes) do
  refresh_head(lane.lane, KEYS[lane.key])
end
announce_head(before, now)
write_outcomes()
return { changed }
