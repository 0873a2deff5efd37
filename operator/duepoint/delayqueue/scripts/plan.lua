#!lua flags=allow-oom
--[[
  Each chain point of the claim becomes its chosen slots, as occurrences of the same claim, and
  moves to its next due, so that the claim can settle the slots while the chain goes on. Where no
  slot is left the chain goes and its definition is completed. Asked again (the reply was lost) it
  changes nothing and answers the same. A HELD point is a chain with an end: it may be among its own
  slots, with the record that it goes on with.

  KEYS  1 meta  2 heads  3 claims  4 leases  5 occ  6 occrec  7 runs  8 ran  9 wake  10... lanes,
        then buckets
  ARGV  layout, id (position), runs_bytes, runs_age (ms), outcomes {from, to},
        lanes {{lane, key}}: all of the claim, key a position in KEYS,
        plans {{key, chain, due, bucket, id, slots}}: chain a position, due in us; absent where no
          slot is left, then bucket (position in KEYS) and id (position);
          slots {from, to} of member, record pairs
  Reply {'lost'} | {'planned', 1 or 0 (not held) for each plan}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include claims
-- include cuts
-- include runs
-- include definition

local META, HEADS, CLAIMS, LEASES, OCC, OCCREC, RUNS, RAN, WAKE = unpack(KEYS, 1, 9)
local refused = refusal(META)
if refused then
  return refused
end
local id = ARGV[args.id]
local token = redis.call('ZSCORE', CLAIMS, id)
if not token then
  return { 'lost' }
end
local band = CLAIMED + tonumber(token)
local before = shard_head(HEADS)

local function holds(lane_key, member)
  local score = redis.call('ZSCORE', lane_key, member)
  return score and tonumber(score) == band
end

local function complete(bucket, schedule, chain)
  local record = redis.call('HGET', bucket, schedule)
  if record and schedule .. version_of(record) == chain and state_of(record) == ARMED then
    redis.call('HSET', bucket, schedule, with_state(record, COMPLETED))
  end
end

-- A slot is three values in its two commands, and unpack() carries 7,900: in parts.
local MOST_SLOTS = 1000

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

local function apply(plan)
  local lane_key, chain = KEYS[plan.key], ARGV[plan.chain]
  if not holds(lane_key, chain) then
    local first = plan.slots[1] <= plan.slots[2] and ARGV[plan.slots[1]]
    return first and holds(lane_key, first) and 1 or 0, false
  end
  add_slots(lane_key, plan.slots[1], plan.slots[2])
  if plan.due then
    redis.call('ZADD', lane_key, 'XX', plan.due, chain)
  else
    redis.call('ZREM', lane_key, chain)
    if #chain == CHAIN_LENGTH then
      complete(KEYS[plan.bucket], ARGV[plan.id], chain)
    else
      redis.call('ZREM', OCC, chain)
      redis.call('HDEL', OCCREC, chain)
    end
  end
  return 1, true
end

local reply, changed = { 'planned' }, false
for _, plan in ipairs(args.plans) do
  local answer, written = apply(plan)
  reply[#reply + 1] = answer
  changed = changed or written
end
if not changed then
  return reply
end
redis.call('HSET', LEASES, id .. ':x', 1)
local held = 0
for _, lane in ipairs(args.lanes) do
  refresh_head(HEADS, lane.lane, KEYS[lane.key])
  held = held + redis.call('ZCOUNT', KEYS[lane.key], band, band)
end
if held == 0 then
  drop_claim(CLAIMS, LEASES, id)
end
write_outcomes(META, RUNS, RAN)
announce_head(HEADS, before, WAKE, server_time())
return reply
