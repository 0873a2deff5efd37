#!lua flags=allow-oom
--[[
  What the claim still holds of the named members is settled; the rest is left alone. Retries are
  stored first, then chains move on, then what is finished goes: a crash between any two writes of
  a replica loses nothing. A lost claim (id not in `claims`) changes nothing but adds its outcomes,
  marked as such.
  A number at or below the last one seen changes nothing. Of more retries than a schedule may have
  open, the oldest that wait go to the dead letters, and the news of it to `runs`. (`deliver` is this
  script with entries of users' streams.)

  KEYS  1 meta  2 heads  3 claims  4 leases  5 occ  6 occrec  7 runs  8 dead  9 ran  10 wake
        11... lanes of the claim, then buckets
  ARGV  layout, number, whole (bool: every point the claim began with is named), named (count),
        every (bool: each chain that the claim holds is finished, none is listed),
        runs_bytes, runs_age (ms), outcomes {from, to}, id (position),
        lanes {{lane, key, whole, chains, moved, finished, occurrences, sources}}: key a position in
          KEYS; whole: how many points of the lane the claim began with, if chains, moved and
          finished name them all and nothing else is settled, otherwise 0; chains and occurrences
          {from, to} of due, member pairs; moved {{due, position}}: chains of one due, their members
          one behind the other in one value; finished {from, to} of members; sources
          {from, to} of one member (or '') for each occurrence. An occurrence is stored if the claim
          holds it or its source; without a source, any named member of its schedule
        records {from, to} of member, record pairs of the occurrences
        letters {order, sums, entries, bytes, all}: where letters may be buried, positions in KEYS of
          their order and their sums; what one namespace may have here, and the entries of all
        dead {{member, from, to}}: position of the member (0: a slot without a point of its own),
          fields of its entry
        ended {{bucket, id, chain}}: position in KEYS, positions of the id and the chain member
        counted {{bucket, id, member}}: position in KEYS, positions of the id and of a member whose
          slot has started: of a schedule with maxRuns it is counted, if the claim holds it
        crowds {{lane, key, id, from, to, most}}: schedules that get new retries: lane, its position
          in KEYS, position of the id, fields of the entries of buried ones, how many may be open
        holds (bool): among chains and occurrences are some that wait to be compared
  Reply {'lost'} | {'settled', applied, remaining, {buried retry, its record, ...},
          {namespace, how many of its dead letters had to go, ...}}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include claims
-- include cuts
-- include runs
-- include letters
-- include burying
-- include definition
-- include streambytes
-- include entries
-- include addentries
-- include held

local META, HEADS, CLAIMS, LEASES, OCC, OCCREC, RUNS, DEAD, RAN, WAKE = unpack(KEYS, 1, 10)
local ID_LENGTH, KIND_POSITION, RETRY = 8, 13, 1
local MOST_ORIGIN = 1000 -- bytes of namespace, name and uid of a schedule, about
local MOST_LOOKED_AT = 2000 -- occurrences of crowded schedules in one script: about a millisecond

local refused = refusal(META)
if refused then
  return refused
end
local id = ARGV[args.id]
local token = redis.call('ZSCORE', CLAIMS, id)
if not token then
  if not args.entries then -- entries that were not appended have no outcomes
    write_outcomes(META, RUNS, RAN, nil, true)
  end
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

-- Everything named is everything held: no member needs to be asked for. Otherwise each one's own
-- score decides, and an occurrence is stored only beside the held member that it follows.
local all_held = args.whole and not state[1] and not state[2] and count_held() == args.named
-- The same of the lanes in which anything is named is as good, but for what is left to hold.
local named_held = all_held
local held, of_schedule, applied = {}, {}, 0
local source_of, is_source_held = {}, {}

local function is_named(lane)
  return #lane.moved > 0 or lane.chains[2] >= lane.chains[1] or lane.finished[2] >= lane.finished[1]
    or lane.occurrences[2] >= lane.occurrences[1]
end

-- How many points that is; nil where some lane does not hold what it did at first.
local function count_whole_lanes()
  local count = 0
  for _, lane in ipairs(args.lanes) do
    if is_named(lane) then
      if lane.whole == 0 or redis.call('ZCOUNT', KEYS[lane.key], band, band) ~= lane.whole then
        return nil
      end
      count = count + lane.whole
    end
  end
  return count
end

local function look_at_members(lane_key, members)
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

local function look_at(lane_key, from, to, step)
  local members = {}
  for i = from, to, step do
    members[#members + 1] = ARGV[i]
  end
  look_at_members(lane_key, members)
end

-- Members that new occurrences follow; they need not be named, only held.
local function look_at_sources(lane_key, lane)
  local sources = {}
  for i = 0, lane.sources[2] - lane.sources[1] do
    local source = ARGV[lane.sources[1] + i]
    if source ~= '' then
      source_of[ARGV[lane.occurrences[1] + 2 * i + 1]] = source
      sources[#sources + 1] = source
    end
  end
  for i, score in ipairs(#sources > 0 and redis.call('ZMSCORE', lane_key, unpack(sources)) or {}) do
    is_source_held[sources[i]] = score and tonumber(score) == band
  end
end

local function look_at_all()
  for _, lane in ipairs(args.lanes) do
    local key = KEYS[lane.key]
    look_at(key, lane.chains[1] + 1, lane.chains[2], 2)
    for _, move in ipairs(lane.moved) do
      look_at_members(key, joined_chains(ARGV[move[2]]))
    end
    look_at(key, lane.occurrences[1] + 1, lane.occurrences[2], 2)
    look_at(key, lane.finished[1], lane.finished[2], 1)
    look_at_sources(key, lane)
  end
end

local function is_held(member)
  return named_held or held[member]
end

-- Why each stream took nothing when this was asked first, as far as the claim tells: all points of
-- one that took its entries are settled, those of another are held.
local function errors_of_before()
  local errors, count = {}, 0
  look_at_all()
  for i, group in ipairs(args.entries) do
    errors[i] = ''
    for _, member in ipairs(members_of(group)) do
      if held[member] then
        errors[i], count = 'REFUSED when it was asked first', count + 1
        break
      end
    end
  end
  return count > 0 and errors or nil
end

if state[1] and args.number <= tonumber(state[1]) then
  return { 'settled', 0, count_held(), {}, {}, args.entries and errors_of_before() or nil }
end

if all_held then
  applied = args.named
elseif args.every then
  for _, lane in ipairs(args.lanes) do
    for _, member in ipairs(redis.call('ZRANGE', KEYS[lane.key], band, band, 'BYSCORE')) do
      if #member == CHAIN_LENGTH then
        applied = applied + redis.call('ZREM', KEYS[lane.key], member)
      end
    end
  end
else
  applied = not state[2] and count_whole_lanes() or 0
  named_held = applied > 0
end
if not named_held and not args.every then
  look_at_all()
end

-- What belongs to a stream that takes no entry stays as it is, beside streams that do.
local function leave_out(group)
  if named_held then
    all_held, named_held, applied = false, false, 0
    look_at_all()
  end
  for _, member in ipairs(members_of(group)) do
    if held[member] then
      held[member], of_schedule[string.sub(member, 1, ID_LENGTH)] = nil, nil
      applied = applied - 1
    end
  end
end

local errors_of, count_refused, news = {}, 0, {}
if args.entries then
  local missing = not named_held and told_missing(args.entries, is_held)
  if missing then
    return missing
  end
  for i, group in ipairs(args.entries) do
    errors_of[i] = append_group(group)
    if errors_of[i] ~= '' then
      count_refused = count_refused + 1
    elseif group.outcome > 0 then
      news[#news + 1] = group.outcome
    end
  end
  if count_refused == #args.entries then
    return { 'refused', errors_of[1] }
  end
  for i, group in ipairs(count_refused > 0 and args.entries or {}) do
    if errors_of[i] ~= '' then
      leave_out(group)
    end
  end
end

-- The due, member pairs of a range of ARGV, of members that are held.
local function write_pairs(lane_key, range)
  if range[2] < range[1] then
    return
  end
  if named_held then
    redis.call('ZADD', lane_key, unpack(ARGV, range[1], range[2]))
    return
  end
  local chosen = {}
  for i = range[1], range[2], 2 do
    if held[ARGV[i + 1]] then
      chosen[#chosen + 1], chosen[#chosen + 2] = ARGV[i], ARGV[i + 1]
    end
  end
  change_scores(lane_key, chosen)
end

-- The same of chains that come by their dues.
local function write_moved(lane_key, moved)
  local pairs, count, sub = {}, 0, string.sub
  for _, move in ipairs(moved) do
    local due, joined = move[1], ARGV[move[2]]
    for first = 1, #joined, CHAIN_LENGTH do
      local member = sub(joined, first, first + CHAIN_LENGTH - 1)
      if named_held or held[member] then
        pairs[count + 1], pairs[count + 2] = due, member
        count = count + 2
      end
    end
  end
  change_scores(lane_key, pairs)
end

local function may_follow(member)
  local source = source_of[member]
  if source then
    return is_source_held[source]
  end
  return of_schedule[string.sub(member, 1, ID_LENGTH)]
end

-- One by one: what stands there already belongs to somebody else, its record too.
local added = {}
local function add_occurrences(lane)
  for i = lane.occurrences[1], lane.occurrences[2], 2 do
    local due, member = ARGV[i], ARGV[i + 1]
    if not held[member] and may_follow(member) then
      added[member] = redis.call('ZADD', KEYS[lane.key], 'NX', due, member) == 1
    end
  end
end

local before = shard_head(HEADS)
for _, lane in ipairs(args.lanes) do
  write_pairs(KEYS[lane.key], lane.occurrences)
  if not named_held then
    add_occurrences(lane)
  end
end
for i = args.records[1], args.records[2], 2 do
  if is_held(ARGV[i]) or added[ARGV[i]] then
    redis.call('ZADD', OCC, 0, ARGV[i])
    redis.call('HSET', OCCREC, ARGV[i], ARGV[i + 1])
  end
end

for _, lane in ipairs(args.lanes) do
  write_pairs(KEYS[lane.key], lane.chains)
  write_moved(KEYS[lane.key], lane.moved)
end

local function bury(fields)
  bury_letter(DEAD, KEYS[args.letters.order], KEYS[args.letters.sums], args.letters, fields)
end

for _, letter in ipairs(args.dead) do
  local member = letter[1] > 0 and ARGV[letter[1]] or ''
  if member == '' or is_held(member) then
    bury({ 'member', member, unpack(ARGV, letter[2], letter[3]) })
  end
end
for _, counted in ipairs(args.counted) do
  local bucket, schedule = KEYS[counted[1]], ARGV[counted[2]]
  local record = is_held(ARGV[counted[3]]) and redis.call('HGET', bucket, schedule)
  if record and is_readable(record) and counts_runs(record) then
    redis.call('HSET', bucket, schedule, with_started(record, started_of(record) + 1))
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
  if args.every and all_held then
    redis.call('ZREMRANGEBYSCORE', KEYS[lane.key], band, band)
  end
  for i = lane.finished[1], lane.finished[2] do
    if is_held(ARGV[i]) then
      gone[#gone + 1] = ARGV[i]
      if #ARGV[i] > CHAIN_LENGTH then
        occurrences[#occurrences + 1] = ARGV[i]
      end
    end
  end
  if #gone > 0 then
    if named_held then
      redis.call('ZREMRANGEBYSCORE', KEYS[lane.key], band, band)
    else
      redis.call('ZREM', KEYS[lane.key], unpack(gone))
    end
  end
  if #occurrences > 0 then
    redis.call('ZREM', OCC, unpack(occurrences))
    redis.call('HDEL', OCCREC, unpack(occurrences))
  end
  if args.every or is_named(lane) then
    refresh_head(HEADS, lane.lane, KEYS[lane.key])
  end
end

-- The retries of a schedule that nobody holds, oldest slot first, and how many are open in all.
local looked_at = 0

local function waiting_retries(schedule, lane_key)
  local retries = {}
  local last = '[' .. schedule .. string.rep('\255', 18)
  for _, member in ipairs(redis.call('ZRANGE', OCC, '[' .. schedule, last, 'BYLEX', 'LIMIT', 0,
    MOST_LOOKED_AT)) do
    looked_at = looked_at + 1
    if string.byte(member, KIND_POSITION) == RETRY then
      retries[#retries + 1] = member
    end
  end
  local waiting, open = {}, 0
  for i, score in ipairs(#retries > 0 and redis.call('ZMSCORE', lane_key, unpack(retries)) or {}) do
    if score then
      open = open + 1
      if tonumber(score) < CLAIMED then
        waiting[#waiting + 1] = retries[i]
      end
    end
  end
  table.sort(waiting, function(one, other)
    return string.sub(one, KIND_POSITION) < string.sub(other, KIND_POSITION)
  end)
  return waiting, open
end

local buried = {}
local now = server_time()

-- A crowd that is not looked at for want of time is looked at with its schedule's next retry.
local function bury_crowd(crowd)
  local schedule, lane_key = ARGV[crowd[3]], KEYS[crowd[2]]
  local range = { '[' .. schedule, '[' .. schedule .. string.rep('\255', 18) }
  if looked_at >= MOST_LOOKED_AT
    or redis.call('ZLEXCOUNT', OCC, range[1], range[2]) <= crowd[6] then
    return
  end
  local waiting, open = waiting_retries(schedule, lane_key)
  for i = 1, math.min(open - crowd[6], #waiting) do
    local member = waiting[i]
    local slot = struct.unpack('>I8', string.sub(member, KIND_POSITION + 1, KIND_POSITION + 8))
    local record, given_up = redis.call('HGET', OCCREC, member) or '', string.format('%.0f', now)
    bury({ 'member', member, 'slot_us', string.format('%.0f', slot), 'given_up_us', given_up,
      unpack(ARGV, crowd[4], crowd[5]) })
    add_outcome(META, RUNS, #member + #record + MOST_ORIGIN, 'member', member, 'record', record,
      'given_up_us', given_up, unpack(ARGV, crowd[4], crowd[5]))
    buried[#buried + 1], buried[#buried + 2] = member, record
    redis.call('ZREM', lane_key, member)
    redis.call('ZREM', OCC, member)
    redis.call('HDEL', OCCREC, member)
  end
  refresh_head(HEADS, crowd[1], lane_key)
end

for _, crowd in ipairs(args.crowds) do
  bury_crowd(crowd)
end
if args.holds then
  add_held(CLAIMS)
end

write_outcomes(META, RUNS, RAN, news)
if #buried > 0 then
  redis.call('SPUBLISH', RAN, '')
end
local remaining = all_held and 0 or count_held()
if remaining == 0 then
  drop_claim(CLAIMS, LEASES, id)
else
  redis.call('HSET', LEASES, id .. ':q', args.number)
end
announce_head(HEADS, before, WAKE, now)
return { 'settled', applied, remaining, buried, letters_dropped, count_refused > 0 and errors_of or nil }
