#!lua flags=allow-oom
--[[
  Settle those of the named members that the claim still holds. The script stores occurrences first, then moves chains on,
  then removes finished points: a replica that is cut off between two writes loses nothing. A lost claim changes nothing
  but adds its outcomes, marked as lost. A number at or below the last one seen changes nothing.
  Called as `deliver` it also adds entries to users' streams: both or neither, so that a lost reply or a worker that dies
  right after doubles no entry. A full server refuses it, and the claim keeps its points. Not on a cluster, where streams
  and shard are on different nodes.

  KEYS  then the lanes of the claim, buckets, logs, and streams, each followed by its state
  ARGV  layout, id (position), number, began (points of the claim at first), runs_bytes, runs_age (ms), outcomes {from, to},
        lanes {{lane, key, moved, finished, occurrences}}: key a position in KEYS; moved {{due, position}}: chains of one
          due, their members one behind the other in one value; finished {from, to} of members;
          occurrences {from, to} of source, due, member, record: stored if the claim holds the source, a named member
        planned {{key, from, to}} (absent: none): member, record of slots of chains that move on. They are stored under the
          claim if it holds their chain
        logs (absent: there can be no letter): position in KEYS of the lanes that have a log
        dead {{member, from, to, log {key, lane, bytes}}}: position of the member (0: none), fields of its entry, and the log
          that it goes to (log.lua): position in KEYS, name of its lane, its most bytes
        ended {{bucket, id, chain}}: definitions that are completed with their chain
        leaving {{bucket, members, chains (bool), lane, key, why}}: members of sets that may have come to their end
          (absent: none): position of their ids, one behind the other in one value, or of their chains, which end
        counted {{bucket, id, member}}: slots that have started, of schedules with maxRuns
        retried {{id, bucket, most}}: schedules that get new retries, and how many may be open
        entries {{key, state, max_length, bytes, most_bytes, names {from, to}, common {from, to}, own {column ...},
          values {from, to}}} (absent: none): for each stream its position in KEYS and that of its counters; the bytes that
          are added, and those that it keeps; names of the fields, and the value that each has in every entry; own: the
          fields, from 1, whose value differs by entry; their values, entry by entry
  Reply {'lost'} | {'settled', applied, remaining, {lane of each dead letter that was dropped, ...}, {id of each schedule
          with more occurrences than may be open, ...}, {planned slot that the claim does not hold, ...}}
        | {'partial', {named member that the claim does not hold, ...}} | {'refused', the server's error}: a stream refused
          an entry. After these two nothing was written
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

local function write_outcomes(is_lost)
  for i = args.outcomes[1], args.outcomes[2] do
    add_outcome(ARGV[i], is_lost)
  end
  report_outcomes()
end

if not token then
  if not args.entries and not args.planned then -- there are no outcomes of what was not appended, or not planned
    write_outcomes(true)
  end
  return { 'lost' }
end
local last, planned = redis.call('HGET', LEASES, id .. ':q'), args.planned or {}

local function count_held()
  local held = 0
  for _, lane in ipairs(args.lanes) do
    held = held + redis.call('ZCOUNT', KEYS[lane.key], band, band)
  end
  return held
end

local function slots_not_held()
  local slots = {}
  for _, part in ipairs(planned) do
    for i = part[2], part[3], 2 do
      if tonumber(redis.call('ZSCORE', KEYS[part[1]], ARGV[i]) or 'nil') ~= band then
        slots[#slots + 1] = ARGV[i]
      end
    end
  end
  return slots
end

if last and args.number <= tonumber(last) then
  return { 'settled', 0, count_held(), {}, {}, slots_not_held() }
end

-- -- what the claim holds ----------------------------------------------------------------------

local function is_named(lane)
  return #lane.moved > 0 or lane.finished[2] >= lane.finished[1] or lane.occurrences[2] >= lane.occurrences[1]
end

local applied, held, missing, chains_of = 0, {}, {}, {}

-- Splits one value of concatenated chain members, or ids.
local function split(value, length)
  local members, count, sub = {}, 0, string.sub
  for first = 1, #value, length do
    count = count + 1
    members[count] = sub(value, first, first + length - 1)
  end
  return members
end

-- Nothing comes to a claim before its first settlement: if it holds as many points as it began with, it holds each of them.
local holds_all = not last and count_held() == args.began

-- Whether each of these members is certainly held. A slot may be named whose plan never arrived; a chain is always one that
-- the claim began with.
local function are_held(members)
  for _, member in ipairs(holds_all and members or {}) do
    if #member ~= CHAIN_LENGTH then
      return false
    end
  end
  return holds_all
end

local function look_at(lane_key, members)
  local is_certain = are_held(members)
  local scores = not is_certain and #members > 0 and redis.call('ZMSCORE', lane_key, unpack(members)) or {}
  for i, member in ipairs(members) do
    if not is_certain and tonumber(scores[i] or 'nil') ~= band then
      missing[#missing + 1] = member
    elseif not held[member] then
      held[member], applied = true, applied + 1
    end
  end
end

for _, lane in ipairs(args.lanes) do
  local sources = {}
  for i = lane.occurrences[1], lane.occurrences[2], 4 do
    sources[#sources + 1] = ARGV[i]
  end
  for _, move in ipairs(lane.moved) do
    chains_of[move] = split(ARGV[move[2]], CHAIN_LENGTH)
    look_at(KEYS[lane.key], chains_of[move])
  end
  look_at(KEYS[lane.key], { unpack(ARGV, lane.finished[1], lane.finished[2]) })
  look_at(KEYS[lane.key], sources)
end

-- Whether an edit of the timing removed this chain while its slot was in flight: a started slot is retried all the same.
local function was_edited_away(chain, follower)
  local had_it = #chain == CHAIN_LENGTH and string.byte(follower, KIND_POSITION) == RETRY
    and string.find(redis.call('HGET', LEASES, id) or '', chain, 1, true)
  for _, one in ipairs(had_it and args.retried or {}) do
    if ARGV[one[1]] == string.sub(chain, 1, ID_LENGTH) then
      return redis.call('HEXISTS', KEYS[one[2]], ARGV[one[1]]) == 1
    end
  end
  return false
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

if args.entries then
  if #missing > 0 then -- such a member must get no entry, and its outcome would be wrong: the caller calls again without it
    return { 'partial', missing }
  end
  local refused = refused_entries()
  if refused then
    return { 'refused', refused }
  end
end

-- -- what is stored ----------------------------------------------------------------------------

-- A point that exists already belongs to another attempt, as does its record, unless it is the source itself.
local function add_followers(lane)
  for i = lane.occurrences[1], lane.occurrences[2], 4 do
    local source, due, member, record = unpack(ARGV, i, i + 3)
    local may_follow = held[source] or was_edited_away(source, member)
    if may_follow and source == member then
      redis.call('ZADD', KEYS[lane.key], 'XX', due, member)
      redis.call('ZADD', OCC, 0, member)
      redis.call('HSET', OCCREC, member, record)
    elseif may_follow then
      add_occurrence(KEYS[lane.key], due, member, record)
    end
  end
end

-- Writes the new dues of held chains, which come grouped by due.
local function write_moved(lane_key, moved)
  local pairs, count = {}, 0
  for _, move in ipairs(moved) do
    for _, member in ipairs(chains_of[move]) do
      if held[member] then
        pairs[count + 1], pairs[count + 2] = move[1], member
        count = count + 2
      end
    end
  end
  change_scores(lane_key, pairs)
end

local before = shard_head()
for _, lane in ipairs(args.lanes) do
  add_followers(lane)
end
local is_any_planned = false
for _, part in ipairs(planned) do
  for i = part[2], part[3], 2 do
    if held[string.sub(ARGV[i], 1, CHAIN_LENGTH)] then
      is_any_planned = add_occurrence(KEYS[part[1]], band, ARGV[i], ARGV[i + 1]) or is_any_planned
    end
  end
end
for _, lane in ipairs(args.lanes) do
  write_moved(KEYS[lane.key], lane.moved)
end
for _, letter in ipairs(args.dead) do
  local member = letter[1] > 0 and ARGV[letter[1]] or ''
  if member == '' or held[member] then
    add_to_log(LOGS, letter[4], { 'member', member, unpack(ARGV, letter[2], letter[3]) })
  end
end
for _, counted in ipairs(args.counted) do
  local bucket, schedule = KEYS[counted[1]], ARGV[counted[2]]
  local record = held[ARGV[counted[3]]] and counting_record(bucket, schedule)
  if record then
    redis.call('HSET', bucket, schedule, with_started(record, started_of(record) + 1))
  end
end
for _, ended in ipairs(args.ended) do
  if held[ARGV[ended[3]]] then
    complete(KEYS[ended[1]], ARGV[ended[2]], ARGV[ended[3]])
  end
end

-- -- what goes ---------------------------------------------------------------------------------

for _, lane in ipairs(args.lanes) do
  local gone, occurrences, lane_key = {}, {}, KEYS[lane.key]
  for i = lane.finished[1], lane.finished[2] do
    if held[ARGV[i]] then
      gone[#gone + 1] = ARGV[i]
      if #ARGV[i] > CHAIN_LENGTH then
        occurrences[#occurrences + 1] = ARGV[i]
      end
    end
  end
  if #gone > 0 and #gone == redis.call('ZCOUNT', lane_key, band, band) then
    redis.call('ZREMRANGEBYSCORE', lane_key, band, band) -- faster than by name
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

-- Returns those of these chains that are held, or all of these ids.
local function leaving_of(value, are_chains)
  local ids, chains = {}, {}
  for _, member in ipairs(split(value, are_chains and CHAIN_LENGTH or ID_LENGTH)) do
    if not are_chains or held[member] then
      ids[#ids + 1], chains[#chains + 1] = string.sub(member, 1, ID_LENGTH), member
    end
  end
  return ids, are_chains and chains or nil
end

local left, crowded, now = {}, {}, server_time()
for _, part in ipairs(args.leaving or {}) do
  local ids, chains = leaving_of(ARGV[part[2]], part[3])
  leave(KEYS[part[1]], ids, chains, part[4], KEYS[part[5]], part[6], now, left)
end
remember_ended(left, now)

if is_any_planned or not args.planned then
  write_outcomes()
end
local remaining = count_held()
if remaining == 0 then
  drop_claim(id)
else
  redis.call('HSET', LEASES, id .. ':q', args.number)
end
announce_head(before)
for _, schedule in ipairs(args.retried) do
  if redis.call('ZLEXCOUNT', OCC, range_of(ARGV[schedule[1]])) > schedule[3] then
    crowded[#crowded + 1] = ARGV[schedule[1]]
  end
end
return { 'settled', applied, remaining, letters_dropped, crowded, slots_not_held() }
