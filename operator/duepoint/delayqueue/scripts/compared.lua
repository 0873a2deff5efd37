#!lua flags=allow-oom
--[[
  What waited on a server that went back was compared: what has ended is gone, the rest is due at
  once, after `back`, so that nobody sets it aside again. A chain that waited as a whole stands where
  the caller says. What does not wait (any more) is left alone.

  KEYS  1 meta  2 heads  3 occ  4 occrec  5 wake  6... lanes, then buckets
  ARGV  layout, epoch, lanes {{lane, key}}, gone {{lane key, member}},
        due {{lane key, member, record}}: record a position, 0: it stays as it is,
        chains {{lane key, chain, due}}: the due is before now or not, but always after `back`,
        added {{lane key, member, record}}: occurrences that the server has lost; one that is there
          stays as it is,
        started {{bucket, id, count}}: so many runs of a schedule with maxRuns have started at least
  Reply {changed}
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta
-- include time
-- include heads
-- include claims
-- include definition
-- include held

local META, HEADS, OCC, OCCREC, WAKE = unpack(KEYS, 1, 5)
local refused = fenced_refusal(META)
if refused then
  return refused
end
local now, before, changed = server_time(), shard_head(HEADS), 0
local at_once = string.format('%.0f', math.max(now, (shard_history.back or 0) + 1))

local function waits(lane_key, member)
  local score = redis.call('ZSCORE', lane_key, member)
  return score and tonumber(score) == CLAIMED + HELD_TOKEN
end

for _, one in ipairs(args.added) do
  local lane_key, member = KEYS[one[1]], ARGV[one[2]]
  if redis.call('ZADD', lane_key, 'NX', at_once, member) == 1 then
    redis.call('ZADD', OCC, 0, member)
    redis.call('HSET', OCCREC, member, ARGV[one[3]])
    changed = changed + 1
  end
end
for _, one in ipairs(args.gone) do
  local lane_key, member = KEYS[one[1]], ARGV[one[2]]
  if waits(lane_key, member) then
    redis.call('ZREM', lane_key, member)
    redis.call('ZREM', OCC, member)
    redis.call('HDEL', OCCREC, member)
    changed = changed + 1
  end
end
for _, one in ipairs(args.due) do
  local lane_key, member = KEYS[one[1]], ARGV[one[2]]
  if waits(lane_key, member) then
    redis.call('ZADD', lane_key, 'XX', at_once, member)
    if one[3] > 0 then
      redis.call('HSET', OCCREC, member, ARGV[one[3]])
    end
    changed = changed + 1
  end
end
for _, one in ipairs(args.started) do
  local bucket, id = KEYS[one[1]], ARGV[one[2]]
  local record = redis.call('HGET', bucket, id)
  if record and is_readable(record) and counts_runs(record) and started_of(record) < one[3] then
    redis.call('HSET', bucket, id, with_started(record, one[3]))
  end
end
for _, one in ipairs(args.chains) do
  local lane_key, chain = KEYS[one[1]], ARGV[one[2]]
  if waits(lane_key, chain) then
    redis.call('ZADD', lane_key, 'XX', math.max(one[3], (shard_history.back or 0) + 1), chain)
    changed = changed + 1
  end
end
for _, lane in ipairs(args.lanes) do
  refresh_head(HEADS, lane.lane, KEYS[lane.key])
end
announce_head(HEADS, before, WAKE, now)
return { changed }
