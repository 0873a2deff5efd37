#!lua flags=allow-oom
--[[
  Store the chosen slots of each chain point as occurrences of the same claim, and move the chain to its next
  due, so that the claim can settle the slots while the chain goes on. If no slot is left, the chain is removed
  and its definition completed. Called again (the reply was lost) it changes nothing and replies the same.

  KEYS  then lanes and buckets
  ARGV  layout, id (position), runs_bytes, runs_age (ms), outcomes {from, to},
        lanes {{lane, key}}: all of the claim, key a position in KEYS,
        plans {{key, chain, due, bucket, id, slots}}: chain a position, due in us; if no slot is left due is
          absent, and bucket (position in KEYS) and id (position) are there;
          slots {from, to} of member, record pairs
  Reply {'lost'} | {'planned', 1 or 0 (not held) for each plan}
]]
-- keys meta heads claims leases occ occrec runs ran wake
-- include shard
-- include wake
-- include claims
-- include callersclaim
-- include runs
-- include definition

local MOST_SLOTS = 1000 -- a slot is three values in its two commands, and unpack() carries 7,900: in parts
if not token then
  return { 'lost' }
end
local before = shard_head()

local function holds(lane_key, member)
  local score = redis.call('ZSCORE', lane_key, member)
  return score and tonumber(score) == band
end

local function add_slots(lane_key, from, to)
  for first = from, to, 2 * MOST_SLOTS do
    local last = math.min(first + 2 * MOST_SLOTS - 1, to)
    local claimed, listed = {}, {}
    for i = first, last, 2 do
      local at = i - first
      claimed[at + 1], claimed[at + 2] = band, ARGV[i]
      listed[at + 1], listed[at + 2] = 0, ARGV[i]
    end
    redis.call('ZADD', lane_key, unpack(claimed))
    redis.call('ZADD', OCC, unpack(listed))
    redis.call('HSET', OCCREC, unpack(ARGV, first, last))
  end
end

local reply, is_changed = { 'planned' }, false
for _, plan in ipairs(args.plans) do
  local lane_key, chain, first, last = KEYS[plan.key], ARGV[plan.chain], plan.slots[1], plan.slots[2]
  if holds(lane_key, chain) then
    add_slots(lane_key, first, last)
    if plan.due then
      redis.call('ZADD', lane_key, 'XX', plan.due, chain)
    else
      redis.call('ZREM', lane_key, chain)
      complete(KEYS[plan.bucket], ARGV[plan.id], chain)
    end
    reply[#reply + 1], is_changed = 1, true
  else
    reply[#reply + 1] = first <= last and holds(lane_key, ARGV[first]) and 1 or 0
  end
end
if not is_changed then
  return reply
end
redis.call('HSET', LEASES, id .. ':x', 1)
local held = 0
for _, lane in ipairs(args.lanes) do
  refresh_head(lane.lane, KEYS[lane.key])
  held = held + redis.call('ZCOUNT', KEYS[lane.key], band, band)
end
if held == 0 then
  drop_claim(id)
end
write_outcomes()
announce_head(before, server_time())
return reply
