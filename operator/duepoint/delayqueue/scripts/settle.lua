#!lua flags=allow-oom
--[[
  What the claim still holds of the named members is settled; the rest is left alone. Retries are
  stored first, then chains move on, then what is finished goes: a crash between any two writes of
  a replica loses nothing. A lost claim (id not in `claims`) changes nothing but adds its outcomes.
  A number at or below the last one seen changes nothing.

  KEYS  1 meta  2 heads  3 claims  4 leases  5 occ  6 occrec  7 runs  8 dead  9 ran  10 wake
        11... lanes of the claim, then buckets
  ARGV  layout, number, whole (bool: every point the claim began with is named), named (count),
        runs_limit, dead_limit (entries), outcomes {from, to}, id (position),
        lanes {{lane, key, chains, finished, occurrences}}: key a position in KEYS; chains and
          occurrences {from, to} of due, member pairs; finished {from, to} of members. An
          occurrence is stored if the claim holds it, or another named member of its schedule
        records {from, to} of member, record pairs of the occurrences
        dead {{member, from, to}}: position of the member (0: a slot without a point of its own),
          fields of its entry
        ended {{bucket, id, chain}}: position in KEYS, positions of the id and the chain member
  Reply {'lost'} | {'settled', applied, remaining}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include claims
-- include runs
-- include definition

local META, HEADS, CLAIMS, LEASES, OCC, OCCREC, RUNS, DEAD, RAN, WAKE = unpack(KEYS, 1, 10)
local ID_LENGTH = 8

local refused = refusal(META)
if refused then
  return refused
end
local id = ARGV[args.id]
local token = redis.call('ZSCORE', CLAIMS, id)
if not token then
  write_outcomes(RUNS, RAN)
  return { 'lost' }
end
local band = CLAIMED + tonumber(token)
local state = redis.call('HMGET', LEASES, id .. ':q', id .. ':x')

local function count_held()
  local held = 0
  for _, lane in ipairs(args.lanes) do
    held = held + redis.call('ZCOUNT', KEYS[lane.key], band, band)
  end
  return held
end

if state[1] and args.number <= tonumber(state[1]) then
  return { 'settled', 0, count_held() }
end

-- Everything named is everything held: no member needs to be asked for. Otherwise each one's own
-- score decides, and an occurrence is stored only beside a held member of its schedule.
local all_held = args.whole and not state[1] and not state[2] and count_held() == args.named
local held, of_schedule, applied = {}, {}, 0

local function look_at(lane_key, from, to, step)
  local members = {}
  for i = from, to, step do
    members[#members + 1] = ARGV[i]
  end
  if #members == 0 then
    return
  end
  for i, score in ipairs(redis.call('ZMSCORE', lane_key, unpack(members))) do
    local member = members[i]
    if score and tonumber(score) == band and not held[member] then
      held[member] = true
      of_schedule[string.sub(member, 1, ID_LENGTH)] = true
      applied = applied + 1
    end
  end
end

if all_held then
  applied = args.named
else
  for _, lane in ipairs(args.lanes) do
    local key = KEYS[lane.key]
    look_at(key, lane.chains[1] + 1, lane.chains[2], 2)
    look_at(key, lane.occurrences[1] + 1, lane.occurrences[2], 2)
    look_at(key, lane.finished[1], lane.finished[2], 1)
  end
end

local function is_held(member)
  return all_held or held[member]
end

-- The due, member pairs of a range of ARGV that may be written, as arguments of ZADD.
local function chosen_pairs(range, is_chosen)
  local chosen = {}
  for i = range[1], range[2], 2 do
    if is_chosen(ARGV[i + 1]) then
      chosen[#chosen + 1] = ARGV[i]
      chosen[#chosen + 1] = ARGV[i + 1]
    end
  end
  return chosen
end

local function write_pairs(lane_key, mode, range, is_chosen)
  if range[2] < range[1] then
    return
  end
  if all_held then
    redis.call('ZADD', lane_key, unpack(ARGV, range[1], range[2]))
    return
  end
  local chosen = chosen_pairs(range, is_chosen)
  if #chosen > 0 then
    redis.call('ZADD', lane_key, mode, unpack(chosen))
  end
end

local function is_beside_held(member)
  return not held[member] and of_schedule[string.sub(member, 1, ID_LENGTH)]
end

local before = shard_head(HEADS)
for _, lane in ipairs(args.lanes) do
  write_pairs(KEYS[lane.key], 'XX', lane.occurrences, is_held)
  if not all_held then
    write_pairs(KEYS[lane.key], 'NX', lane.occurrences, is_beside_held)
  end
end
for i = args.records[1], args.records[2], 2 do
  if is_held(ARGV[i]) or is_beside_held(ARGV[i]) then
    redis.call('ZADD', OCC, 0, ARGV[i])
    redis.call('HSET', OCCREC, ARGV[i], ARGV[i + 1])
  end
end

for _, lane in ipairs(args.lanes) do
  write_pairs(KEYS[lane.key], 'XX', lane.chains, is_held)
end

for _, letter in ipairs(args.dead) do
  local member = letter[1] > 0 and ARGV[letter[1]] or ''
  if member == '' or is_held(member) then
    redis.call('XADD', DEAD, 'MAXLEN', '~', args.dead_limit, '*', 'member', member,
      unpack(ARGV, letter[2], letter[3]))
  end
end
for _, ended in ipairs(args.ended) do
  local bucket, schedule, chain = KEYS[ended[1]], ARGV[ended[2]], ARGV[ended[3]]
  local record = is_held(chain) and redis.call('HGET', bucket, schedule)
  if record and schedule .. version_of(record) == chain and state_of(record) == ARMED then
    redis.call('HSET', bucket, schedule, with_state(record, COMPLETED))
  end
end

for _, lane in ipairs(args.lanes) do
  local gone, occurrences = {}, {}
  for i = lane.finished[1], lane.finished[2] do
    if is_held(ARGV[i]) then
      gone[#gone + 1] = ARGV[i]
      if #ARGV[i] > CHAIN_LENGTH then
        occurrences[#occurrences + 1] = ARGV[i]
      end
    end
  end
  if #gone > 0 then
    if all_held then
      redis.call('ZREMRANGEBYSCORE', KEYS[lane.key], band, band)
    else
      redis.call('ZREM', KEYS[lane.key], unpack(gone))
    end
  end
  if #occurrences > 0 then
    redis.call('ZREM', OCC, unpack(occurrences))
    redis.call('HDEL', OCCREC, unpack(occurrences))
  end
  refresh_head(HEADS, lane.lane, KEYS[lane.key])
end

write_outcomes(RUNS, RAN)
local remaining = all_held and 0 or count_held()
if remaining == 0 then
  drop_claim(CLAIMS, LEASES, id)
else
  redis.call('HSET', LEASES, id .. ':q', args.number)
end
announce_head(HEADS, before, WAKE, server_time())
return { 'settled', applied, remaining }
