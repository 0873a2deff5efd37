#!lua
--[[
  Definitions of one shard, each with its chain point and the occurrences of its open slots. Every row is stored
  whole or not at all, and its answer says which. An occurrence that is in the queue already stays as it is. The
  same or an older generation of the same uid changes nothing, unless what is stored has the fingerprint that is
  to be replaced; another uid under the id is reported, not written. What is stored and cannot be read is made
  anew. With keep_chain the points, claims and retries of the schedule are left alone and a state that was
  reached meanwhile (completed) stays; with a due besides, a chain that is due neither yet nor by `after` gets
  that one. A row waits while a claim holds the chain that it moves, or where its due has come since it was
  worked out: the chain may have moved on past it. The count of started runs never falls. Blobs are stored where
  any row is.

  KEYS  then buckets and lanes
  ARGV  layout, epoch, incarnation, numbers {number ...}: those that stand in the records,
        blobs {from, to}: digest, blob pairs, lanes {{number, position in KEYS}},
        groups {bucket, lane, from, to, ...}: for each bucket (position in KEYS) and lane (position in `lanes`) the
          rows that are theirs; a row is id, record, due of its chain (us; '' for none), no id twice,
        options {position of an id: {keep_chain (bool), after (us; with keep_chain): due is that of the
          first slot after this instant, replaces (position): the fingerprint that is to be replaced,
          undone_after (us): occurrences of other timings whose slots are after this instant are dropped, but for
            what a ScheduleRun wants and checks; a claim that holds them loses them,
          open {from, to}: due, member, record of each occurrence}} of the rows that have any
  Reply {answer of each row}: APPLIED | UNCHANGED | COLLISION
        | CHANGED (keep_chain, but the chain is not as assumed)
        | HELD (the chain was to get another due, and a claim holds it or that due has come)
        | ABSENT (the shard is draining: write it to the new one);
        or {BUSY}: a row is on its way to another shard, and nothing was written
  Error WRONGLAYOUT (also: a number stands for no text any more), OOM
]]
-- keys meta heads blobs wake leases interned occ occrec
-- include shard
-- include fenced
-- include time
-- include wake
-- include occurrences
-- include definition
-- include moves
-- include blobs
-- include numbers

local now, is_draining = server_time(), shard_state == 'draining'
local GROUP_LENGTH, ROW_LENGTH, NO_OPTIONS = 4, 3, {}
local MOST_DROPPED = 2000 -- unpack() carries some 7,900; a catch-up may have 10,000

-- What is stored under the ids of each group; nil where a row is on its way.
local function read_stored(groups)
  local stored_of = {}
  for g = 1, #groups, GROUP_LENGTH do
    local ids, count = {}, 0
    for i = groups[g + 2], groups[g + 3], ROW_LENGTH do
      count = count + 1
      ids[count] = ARGV[i]
      if is_draining and where_else(ARGV[i], true) then
        return nil
      end
    end
    stored_of[g] = redis.call('HMGET', KEYS[groups[g]], unpack(ids))
  end
  return stored_of
end

-- The record to be written over one of the same uid; or nil and the answer that says why none is.
local function newer_record(record, stored, replaces)
  local uid, generation = identity(stored)
  local wanted_uid, wanted_generation = identity(record)
  if uid ~= wanted_uid then
    return nil, 'COLLISION'
  end
  local is_replaced = replaces and string.sub(stored, 8, 11) == ARGV[replaces] -- the fingerprint
  if wanted_generation <= generation and not is_replaced then
    return nil, 'UNCHANGED'
  end
  if counts_runs(stored) and counts_runs(record) then
    return with_started(record, math.max(started_of(stored), started_of(record)))
  end
  return record
end

-- The due that a kept chain gets, '' where it keeps its own; or HELD.
local function kept_due(lane, chain, due, after)
  local standing = due ~= '' and tonumber(redis.call('ZSCORE', lane, chain) or '-1')
  if due == '' or standing <= math.max(now, after) then
    return ''
  end
  return (standing >= CLAIMED or tonumber(due) <= now) and 'HELD' or due
end

-- Record and chain due to be written ('' for none); or nil and the answer that says why none is.
local function decide(id, record, due, stored, options, lane)
  if not stored and is_draining then
    return nil, 'ABSENT'
  end
  local answer = nil
  if stored and is_readable(stored) then
    record, answer = newer_record(record, stored, options.replaces)
  elseif options.keep_chain then
    return nil, 'CHANGED'
  end
  if record and options.keep_chain then
    if version_of(stored) ~= version_of(record) then
      return nil, 'CHANGED'
    end
    due = kept_due(lane, id .. version_of(record), due, options.after)
    if due == 'HELD' then
      return nil, due
    end
    record = with_state(record, state_of(stored))
  end
  return record, answer or due
end

-- What a former timing began after an instant from which another one is to count.
local function drop_undone(lane_key, id, version, after)
  local undone = {}
  for _, member in ipairs(occurrences_of(id, -1)) do
    local is_timed = #member == OCCURRENCE_LENGTH and string.byte(member, KIND_POSITION) ~= CHECK
    local is_former = string.sub(member, ID_LENGTH + 1, CHAIN_LENGTH) ~= version
    if is_timed and is_former and slot_of(member) > after then
      undone[#undone + 1] = member
    end
  end
  for first = 1, #undone, MOST_DROPPED do
    drop_occurrences(lane_key, { unpack(undone, first, math.min(first + MOST_DROPPED - 1, #undone)) })
  end
end

local groups, stored_of = args.groups, read_stored(args.groups)
if not stored_of then
  return { 'BUSY' }
end
local lanes, answers, definitions, opened, undone = {}, {}, {}, {}, {}
for n, lane in ipairs(args.lanes) do
  lanes[n] = { number = lane[1], key = KEYS[lane[2]], gone = {}, points = { '+inf', '' }, count = 2 }
end
local rows, first_due, first_id = 0, math.huge, nil
for g = 1, #groups, GROUP_LENGTH do
  local lane, i, fields, count = lanes[groups[g + 1]], groups[g + 2], {}, 0
  for _, stored in ipairs(stored_of[g]) do
    local id, options = ARGV[i], args.options[i] or NO_OPTIONS
    local record, due = decide(id, ARGV[i + 1], ARGV[i + 2], stored, options, lane.key)
    rows = rows + 1
    answers[rows] = record and 'APPLIED' or due
    if record then
      definitions[g], lane.is_touched = fields, true
      fields[count + 1], fields[count + 2], count = id, record, count + 2
      if stored and not options.keep_chain then
        lane.gone[#lane.gone + 1] = id .. version_of(stored)
      end
      if due ~= '' then
        local n, due_us = lane.count, tonumber(due)
        lane.points[n + 1], lane.points[n + 2], lane.count = due, id .. version_of(record), n + 2
        if due_us < first_due then
          first_due, first_id = due_us, id
        end
      end
      if options.undone_after then
        undone[#undone + 1] = { lane = lane.key, id = id, version = version_of(record), after = options.undone_after }
      end
      if options.open then
        opened[#opened + 1] = { lane = lane.key, from = options.open[1], to = options.open[2] }
      end
    end
    i = i + ROW_LENGTH
  end
end
if not next(definitions) then
  return answers
end

local gone = use_numbers(args.numbers)
if gone then
  return redis.error_reply(gone)
end
store_blobs()
for g, fields in pairs(definitions) do
  redis.call('HSET', KEYS[groups[g]], unpack(fields))
end
local before = shard_head()
for _, lane in ipairs(lanes) do
  if #lane.gone > 0 then
    redis.call('ZREM', lane.key, unpack(lane.gone))
  end
  if lane.is_touched then
    redis.call('ZADD', lane.key, unpack(lane.points))
  end
end
for _, row in ipairs(undone) do
  drop_undone(row.lane, row.id, row.version, row.after)
end
for _, open in ipairs(opened) do
  for i = open.from, open.to, 3 do
    add_occurrence(open.lane, ARGV[i], ARGV[i + 1], ARGV[i + 2])
  end
end
for _, lane in ipairs(lanes) do
  if lane.is_touched then
    refresh_head(lane.number, lane.key)
  end
end
announce_head(before, now, first_id, first_due)
return answers
