#!lua
--[[
  Mends what a comparison found wrong, each finding looked at again first: what changed meanwhile is left alone.
  Arming needs memory, so a full server refuses the whole step.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, lanes {{lane, key}}: heads refreshed,
        arm {{lane key, bucket key, id, chain, due}}: armed definitions without a chain,
        drop {{lane key, bucket key, id, member}}: points without a definition, or chains of an
          old timing version,
        free {{lane key, bucket key, id, member, due, score}}: claimed points without a claim,
        records {id position}: what `leases` says of claims that do not exist,
        add {{lane key, member}}, forget {{lane key, member}}: occurrences missing from `occ`, or
          in it without a point,
        latest (us after now that no lease can end), ran (channel; as of claim.lua)
  Reply {armed, dropped, mended, {lane ...}: to be swept together, for a lease that cannot be}
  Error OOM
]]
-- keys meta heads claims leases occ occrec wake runs
-- include shard
-- include fenced
-- include wake
-- include record
-- include claims
-- include occurrences
-- include definition
-- include doubt

if shard_state == 'draining' then
  return { 0, 0, 0, {} } -- a point without a definition is right here: that went before it
end
local now, before = server_time(), shard_head()
local armed, dropped, mended = 0, 0, 0

for _, wanted in ipairs(args.arm) do
  local lane, bucket, id, chain = KEYS[wanted[1]], KEYS[wanted[2]], ARGV[wanted[3]], ARGV[wanted[4]]
  if is_armed_as(redis.call('HGET', bucket, id), id, chain) then
    armed = armed + redis.call('ZADD', lane, 'NX', wanted[5], chain)
  end
end

for _, stray in ipairs(args.drop) do
  local lane, bucket, id, member = KEYS[stray[1]], KEYS[stray[2]], ARGV[stray[3]], ARGV[stray[4]]
  local record = redis.call('HGET', bucket, id)
  if not record or (#member == CHAIN_LENGTH and id .. version_of(record) ~= member) then
    dropped = dropped + drop_occurrences(lane, { member })
  end
end

for _, missing in ipairs(args.add) do
  if redis.call('ZSCORE', KEYS[missing[1]], ARGV[missing[2]]) then
    mended = mended + redis.call('ZADD', OCC, 'NX', 0, ARGV[missing[2]])
  end
end
for _, gone in ipairs(args.forget) do
  if not redis.call('ZSCORE', KEYS[gone[1]], ARGV[gone[2]]) then
    mended = mended + redis.call('ZREM', OCC, ARGV[gone[2]])
    redis.call('HDEL', OCCREC, ARGV[gone[2]])
  end
end

-- A lease that ends later than any can: written while the server's clock was wrong. It lapses now;
-- its points move with it, so all of its lanes must be here.
local key_of, wanted = {}, {}
for _, lane in ipairs(args.lanes) do
  key_of[lane.lane] = KEYS[lane.key]
end

local function lapse(id, old)
  local _, lanes = read_record(redis.call('HGET', LEASES, id))
  local lane_keys = lane_keys_of(lanes, key_of)
  if not lane_keys then
    wanted = lanes
    return
  end
  change_lease(id, old, now, lane_keys)
  mended = mended + 1
end

local absurd = redis.call('ZRANGE', CLAIMS, '(' .. digits(now + args.latest), '(+inf', 'BYSCORE', 'LIMIT', 0, 10,
  'WITHSCORES')
for i = 1, #absurd, 2 do
  lapse(absurd[i], tonumber(absurd[i + 1]))
end

-- A claimed point whose claim does not exist is due when the caller says: a chain that was due now
-- would lose the slots since it was claimed. What may have run before the server went back waits for the leader.
local back = tonumber(meta[6])
for _, orphan in ipairs(args.free) do
  local lane, bucket, id, member = KEYS[orphan[1]], KEYS[orphan[2]], ARGV[orphan[3]], ARGV[orphan[4]]
  local score, token = redis.call('ZSCORE', lane, member), orphan[6] - CLAIMED
  local held = token < math.huge and redis.call('ZCOUNT', CLAIMS, token, token) > 0
  local record = #member == CHAIN_LENGTH and redis.call('HGET', bucket, id)
  local is_stale = record and not is_armed_as(record, id, member)
  if score and tonumber(score) == orphan[6] and not held and not is_stale then
    redis.call('ZADD', lane, 'XX', orphan[5], member)
    mended = mended + 1
    if back and orphan[5] <= back then
      begin_doubt(back, now)
    end
  end
end
for _, position in ipairs(args.records) do
  local id = ARGV[position]
  if not redis.call('ZSCORE', CLAIMS, id) then
    drop_claim(id)
    mended = mended + 1
  end
end

for _, lane in ipairs(args.lanes) do
  local stood = redis.call('ZSCORE', HEADS, lane.lane)
  refresh_head(lane.lane, KEYS[lane.key])
  if stood ~= redis.call('ZSCORE', HEADS, lane.lane) then
    mended = mended + 1
  end
end
announce_head(before, now)
return { armed, dropped, mended, wanted }
