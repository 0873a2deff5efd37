#!lua flags=allow-oom
--[[
  Settle those of the named members that the claim still holds. The script stores retries first,
  then moves chains on, then removes finished points: a replica that is cut off between two writes loses nothing. A
  lost claim changes nothing but adds its outcomes, marked as lost. A number at or below the last one seen
  changes nothing. If a schedule has more open retries than it may, the oldest waiting ones go to the dead letters,
  and an event of each to `runs`.
  Called as `deliver` it also adds entries to users' streams: both or neither, so that a lost reply or a worker that dies
  right after doubles no entry. A full server refuses it, and the claim keeps its points. Not on a cluster, where streams
  and shard are on different nodes.

  KEYS  then the lanes of the claim, buckets, and streams, each followed by its state
  ARGV  layout, id (position), number, runs_bytes, runs_age (ms), outcomes {from, to},
        lanes {{lane, key, whole, moved, finished, occurrences, sources}}: key a position in KEYS; whole: how many points of
          the lane the claim began with, if all of them are named, and no others anywhere, otherwise 0; occurrences
          {from, to} of due, member pairs; moved {{due, position}}: chains of one due, their members
          one behind the other in one value; finished {from, to} of members; sources
          {from, to} of one member (or '') for each occurrence. An occurrence is stored if the claim
          holds it or its source; without a source, any named member of its schedule
        records {from, to} of member, record pairs of the occurrences
        logs (absent: there can be no letter): position in KEYS of the lanes that have a log
        dead {{member, from, to, log {key, lane, bytes}}}: position of the member (0: none), fields of its entry, and the log
          that it goes to (log.lua): position in KEYS, name of its lane, its most bytes
        ended {{bucket, id, chain}}: definitions that are completed with their chain
        leaving {{bucket, members, chains (bool), lane, key, why}}: members of sets that may have come to their end
          (absent: none): position of their ids, one behind the other in one value, or of their chains, which end
        counted {{bucket, id, member}}: slots that have started, of schedules with maxRuns
        retried {{lane, key, id, from, to, most, bucket, log}}: schedules that get new retries, fields of the entries of
          buried ones, how many may be open, the bucket of the definition, the log
        entries {{key, state, max_length, bytes, most_bytes, members {from, to}, joined, names {from, to},
          common {from, to}, own {column ...}, values {from, to}, outcome}} (absent: none): for each stream its position in
          KEYS and that of its counters; the bytes that are added, and those that it keeps; the member that causes each
          entry (joined: position of chain members in one value, or 0); names of the fields, and the value that
          each has in every entry; own: the fields, from 1, whose value differs by entry; their values, entry by entry;
          position of an outcome that is written with them, or 0
  Reply {'lost'} | {'settled', applied, remaining, {buried retry, its record, ...},
          {lane of each dead letter that was dropped, ...}}
        | {'partial', {1 or 0 for each member of the entries: whether it is held}} | {'refused', the server's error}: a
          stream refused an entry. After these two nothing was written
  Error OOM (of `deliver`)
]]
-- keys meta heads claims leases occ occrec runs ran wake ended
-- include shard
local LOGS = KEYS[args.logs]
-- include wake
-- include claims
-- include callersclaim
-- include occurrences
-- include runs
-- include log
-- include definition
-- include entries
-- include leaving

local MOST_ORIGIN = 1000 -- bytes
local MOST_LOOKED_AT = 2000 -- occurrences read by one script, which takes a millisecond

if not token then
  if not args.entries then -- entries that were not appended have no outcomes
    write_outcomes(nil, true)
  end
  return { 'lost' }
end
local state = redis.call('HMGET', LEASES, id .. ':q', id .. ':x')

local function count_held()
  local held = 0
  for _, lane in ipairs(args.lanes) do
    held = held + redis.call('ZCOUNT', KEYS[lane.key], band, band)
  end
  return held
end

local held, of_schedule, applied = {}, {}, 0
local source_of, is_source_held = {}, {}

local function is_named(lane)
  return #lane.moved > 0 or lane.finished[2] >= lane.finished[1] or lane.occurrences[2] >= lane.occurrences[1]
end

-- Counts the named points, if each lane with any of them still holds all that it began with; otherwise 0.
local function count_whole_lanes()
  local count = 0
  for _, lane in ipairs(args.lanes) do
    if is_named(lane) then
      if lane.whole == 0 or redis.call('ZCOUNT', KEYS[lane.key], band, band) ~= lane.whole then
        return 0
      end
      count = count + lane.whole
    end
  end
  return count
end

-- Whether the claim holds every named member: then none needs to be looked up. Otherwise each one's own score decides, and
-- an occurrence is stored only if the member that it follows is held.
local named_held = false

-- Splits one value of concatenated chain members.
local function joined_chains(value)
  local members, count, sub = {}, 0, string.sub
  for first = 1, #value, CHAIN_LENGTH do
    count = count + 1
    members[count] = sub(value, first, first + CHAIN_LENGTH - 1)
  end
  return members
end

local function look_at_members(lane_key, members)
  for i, score in ipairs(#members > 0 and redis.call('ZMSCORE', lane_key, unpack(members)) or {}) do
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

-- Whether an edit of the timing removed this chain while its slot was in flight: a started slot is retried all the same.
local function was_edited_away(chain, follower)
  local had_it = #chain == CHAIN_LENGTH and string.byte(follower, KIND_POSITION) == RETRY
    and string.find(redis.call('HGET', LEASES, id) or '', chain, 1, true)
  for _, one in ipairs(had_it and args.retried or {}) do
    if ARGV[one[3]] == string.sub(chain, 1, ID_LENGTH) then
      return redis.call('HEXISTS', KEYS[one[7]], ARGV[one[3]]) == 1
    end
  end
  return false
end

-- Looks up the members that new occurrences follow; they must be held, but need not be named.
local function look_at_sources(lane_key, lane)
  local sources, followers = {}, {}
  for i = 0, lane.sources[2] - lane.sources[1] do
    local source = ARGV[lane.sources[1] + i]
    if source ~= '' then
      followers[#followers + 1] = ARGV[lane.occurrences[1] + 2 * i + 1]
      source_of[followers[#followers]] = source
      sources[#sources + 1] = source
    end
  end
  for i, score in ipairs(#sources > 0 and redis.call('ZMSCORE', lane_key, unpack(sources)) or {}) do
    if score then
      is_source_held[sources[i]] = tonumber(score) == band
    else
      is_source_held[sources[i]] = was_edited_away(sources[i], followers[i])
    end
  end
end

local function look_at_all()
  for _, lane in ipairs(args.lanes) do
    local key = KEYS[lane.key]
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

-- Returns the member that causes each entry of a group.
local function members_of(group)
  if group.joined > 0 then
    return joined_chains(ARGV[group.joined])
  end
  return { unpack(ARGV, group.members[1], group.members[2]) }
end

if state[1] and args.number <= tonumber(state[1]) then
  return { 'settled', 0, count_held(), {}, {} }
end

applied = state[2] and 0 or count_whole_lanes()
named_held = applied > 0
if not named_held then
  look_at_all()
end

-- Returns the reply that not all members are held; nil if they are. A member that is not held must get no entry, and its
-- outcome would be wrong: the caller calls again without it.
local function partial_reply()
  local flags, is_missing = {}, false
  for _, group in ipairs(args.entries) do
    for _, member in ipairs(members_of(group)) do
      flags[#flags + 1] = is_held(member) and 1 or 0
      is_missing = is_missing or not is_held(member)
    end
  end
  return is_missing and { 'partial', flags } or nil
end

-- Adds the entries of every stream, or of none if one refuses: returns the server's error then.
local function refused_entries()
  local added = {}
  for i, group in ipairs(args.entries) do
    added[i] = {}
    local refused = append_group(group, added[i])
    if refused ~= '' then
      for j, ids in ipairs(added) do
        if #ids > 0 then
          redis.call('XDEL', KEYS[args.entries[j].key], unpack(ids))
        end
      end
      return refused
    end
  end
  return nil
end

local entered = {}
if args.entries then
  local partial = not named_held and partial_reply()
  if partial then
    return partial
  end
  local refused = refused_entries()
  if refused then
    return { 'refused', refused }
  end
  for _, group in ipairs(args.entries) do
    if group.outcome > 0 then
      entered[#entered + 1] = group.outcome
    end
  end
end

-- Writes the due, member pairs of a range of ARGV whose members are held.
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

-- Writes the new dues of held chains, which come grouped by due.
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

-- Adds followers one by one with NX: a point that exists already belongs to another attempt, as does its record.
local added = {}
local function add_followers(lane)
  for i = lane.occurrences[1], lane.occurrences[2], 2 do
    local due, member = ARGV[i], ARGV[i + 1]
    local source = source_of[member]
    local may_follow = is_source_held[source]
    if not source then
      may_follow = of_schedule[string.sub(member, 1, ID_LENGTH)]
    end
    if not held[member] and may_follow then
      added[member] = redis.call('ZADD', KEYS[lane.key], 'NX', due, member) == 1
    end
  end
end

local before = shard_head()
for _, lane in ipairs(args.lanes) do
  write_pairs(KEYS[lane.key], lane.occurrences)
  if not named_held then
    add_followers(lane)
  end
end
for i = args.records[1], args.records[2], 2 do
  if is_held(ARGV[i]) or added[ARGV[i]] then
    redis.call('ZADD', OCC, 0, ARGV[i])
    redis.call('HSET', OCCREC, ARGV[i], ARGV[i + 1])
  end
end
for _, lane in ipairs(args.lanes) do
  write_moved(KEYS[lane.key], lane.moved)
end
for _, letter in ipairs(args.dead) do
  local member = letter[1] > 0 and ARGV[letter[1]] or ''
  if member == '' or is_held(member) then
    add_to_log(LOGS, letter[4], { 'member', member, unpack(ARGV, letter[2], letter[3]) })
  end
end
for _, counted in ipairs(args.counted) do
  local bucket, schedule = KEYS[counted[1]], ARGV[counted[2]]
  local record = is_held(ARGV[counted[3]]) and counting_record(bucket, schedule)
  if record then
    redis.call('HSET', bucket, schedule, with_started(record, started_of(record) + 1))
  end
end
for _, ended in ipairs(args.ended) do
  if is_held(ARGV[ended[3]]) then
    complete(KEYS[ended[1]], ARGV[ended[2]], ARGV[ended[3]])
  end
end

for _, lane in ipairs(args.lanes) do
  local gone, occurrences, lane_key = {}, {}, KEYS[lane.key]
  for i = lane.finished[1], lane.finished[2] do
    if is_held(ARGV[i]) then
      gone[#gone + 1] = ARGV[i]
      if #ARGV[i] > CHAIN_LENGTH then
        occurrences[#occurrences + 1] = ARGV[i]
      end
    end
  end
  if #gone > 0 and named_held then
    redis.call('ZREMRANGEBYSCORE', lane_key, band, band)
  elseif #gone > 0 then
    redis.call('ZREM', lane_key, unpack(gone))
  end
  if #occurrences > 0 then
    forget_occurrences(occurrences)
  end
  if is_named(lane) then
    refresh_head(lane.lane, lane_key)
  end
end

-- Returns the retries of a schedule that no worker holds, oldest slot first, and how many are open in all.
local looked_at = 0

local function waiting_retries(schedule, lane_key)
  local retries, waiting, open = {}, {}, 0
  for _, member in ipairs(occurrences_of(schedule, MOST_LOOKED_AT)) do
    looked_at = looked_at + 1
    if string.byte(member, KIND_POSITION) == RETRY then
      retries[#retries + 1] = member
    end
  end
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

local buried, now = {}, server_time()

-- Buries the oldest retries beyond the limit. A schedule that is skipped to keep the script short is checked with its next retry.
local function bury_oldest_retries(lane, lane_key, schedule, from, to, most, log)
  if looked_at >= MOST_LOOKED_AT or redis.call('ZLEXCOUNT', OCC, range_of(schedule)) <= most then
    return
  end
  local waiting, open = waiting_retries(schedule, lane_key)
  for i = 1, math.min(open - most, #waiting) do
    local member, given_up = waiting[i], digits(now)
    local record = redis.call('HGET', OCCREC, member) or ''
    add_to_log(LOGS, log, { 'member', member, 'slot_us', digits(slot_of(member)), 'given_up_us', given_up,
      unpack(ARGV, from, to) })
    add_outcome(#member + #record + MOST_ORIGIN, 'member', member, 'record', record,
      'given_up_us', given_up, unpack(ARGV, from, to))
    buried[#buried + 1], buried[#buried + 2] = member, record
    drop_occurrences(lane_key, { member })
  end
  refresh_head(lane, lane_key)
end

for _, schedule in ipairs(args.retried) do
  bury_oldest_retries(schedule[1], KEYS[schedule[2]], ARGV[schedule[3]], schedule[4], schedule[5], schedule[6], schedule[8])
end

-- Returns those of these chains that are held, or all of these ids.
local function leaving_of(value, are_chains)
  local ids, chains, length = {}, {}, are_chains and CHAIN_LENGTH or ID_LENGTH
  for first = 1, #value, length do
    local member = string.sub(value, first, first + length - 1)
    if not are_chains or is_held(member) then
      ids[#ids + 1], chains[#chains + 1] = string.sub(member, 1, ID_LENGTH), member
    end
  end
  return ids, are_chains and chains or nil
end

local left = {}
for _, part in ipairs(args.leaving or {}) do
  local ids, chains = leaving_of(ARGV[part[2]], part[3])
  leave(KEYS[part[1]], ids, chains, part[4], KEYS[part[5]], part[6], now, left)
end
remember_ended(left, now)

write_outcomes(entered)
local remaining = count_held()
if remaining == 0 then
  drop_claim(id)
else
  redis.call('HSET', LEASES, id .. ':q', args.number)
end
announce_head(before, now)
return { 'settled', applied, remaining, buried, letters_dropped }
