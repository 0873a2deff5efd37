#!lua
--[[
  Store rows in lanes of shards on one server: Schedules of a namespace, or members of a set. A row names what it
  expects under its id: nothing, or the record with a fingerprint. If it meets that, it is stored whole; otherwise nothing
  changes, and the answer is the stored record, so that the caller decides anew. A row without a record only reads. No id
  comes twice. The count of started runs never falls, and a chain that is left alone keeps its state. A one-off of the
  past that has ended and left a short while ago (ended.lua) is not stored again: its request was repeated. Each part is
  of one lane: trouble with its shard is the answer of that part alone, and the others are written. Called as `drop` it
  runs on a full server, too: it removes rows, or stores a batch that moves and will free the same memory elsewhere.

  KEYS  for each part meta, heads, wake, leases, texts, blobs, occ, occrec, ended, lane; buckets
  ARGV  parts {{keys (position of the first in KEYS), layout, lane, epoch (of a namespace's lane: the
        leader's term) or by_rows (of a set's: for the rows of the set), kinds and blobs {from, to} (absent:
        none): digest, text and digest, blob pairs that the records name, groups {bucket (position in KEYS),
        from, to, ...}, drops (remove the rows), options {position of an id: {...}} of the rows that have any, entry (text;
        absent: none): the set's, if the shard has none}}; a row is id,
        record, due of its chain (us; '': none, '=': leave the chain alone), the expected fingerprint ('': no record;
        '*': any). A row to remove has, in place of the record, its owner (a Schedule's uid as packed, a member's name),
        may expect a fingerprint, and goes with its chain and occurrences. If a worker holds a point of it, the point
        goes all the same, and its settlement changes nothing.
        Options: after (us): leave the chain alone, unless its due is later than both now and this: then it gets the due;
          former (us): the chain of the former timing must not stand later, unless a claim holds it;
          counted (bool): the same for the due itself, if that has come since it was counted;
          open {from, to}: due, member, record of each occurrence that is stored with it; an existing one stays
        moved {batch, from} (absent: no), epoch: the rows are a batch that has departed (depart.lua), and all parts are of one
          shard: it stores the batch once, as its field `from` names the last one; or removes it, whosever the rows are
  Reply for each part {answer of each row}: '+' (stored, new) | '=' (replaced, or removed) | '-' (no record here, in a
        draining shard: see the new one) | '' (no record; in a removal none of that uid or name) | the stored record
        | HELD (the chain was to get another due, but a claim holds it or that due has come: it may have moved on past it;
        or the former chain has moved on: the new one would run the same slots again)
        | ENDED (it is a one-off that has ended and left a short while ago);
        or {BUSY}: a row is moving to another shard | {GONE}: the shard does not know the set
        | {DELETING}: its members are being removed | {MANAGED}: they follow rows and by_rows is not set, or the other
        way round; nothing was written; or the text of an error: UNINIT, FOREIGN, FENCED,
        WRONGLAYOUT; nothing was written
  Error OOM
]]
local META, HEADS, WAKE, LEASES, TEXTS, BLOBS, OCC, OCCREC, ENDED, LANE -- of the part that is written
local PART_KEYS = 10
local args = cmsgpack.unpack(ARGV[1])
-- include shardcheck
-- include fenced
-- include wake
-- include occurrences
-- include definition
-- include ended
-- include moves
-- include texts

local GROUP_LENGTH, ROW_LENGTH = 3, 4
local MOST_DROPPED = 2000 -- unpack() carries some 7,900; a catch-up may have 10,000
local now, is_draining = server_time(), false
-- State of the part that is being written: what its rows have changed so far.
local part, options_of, answers, rows, gone, added, points, count, first_due, optional

-- Returns the answer of a row that must not be written, or nil.
local function refused(record, expected, stored)
  if not stored then
    if is_draining then
      return '-'
    end
    return (record == '' or (expected ~= '' and expected ~= '*')) and '' or nil
  end
  if record == '' or expected == '' or (expected ~= '*' and fingerprint_of(stored) ~= expected) then
    return stored
  end
  return nil
end

-- Returns 'ENDED' if this is a one-off that has ended, or nil; one of the future cannot have ended.
local function ended_answer(id, record, due)
  local due_us = tonumber(due)
  local known = due_us and due_us <= now and one_off(id, record)
  return known and redis.call('ZSCORE', ENDED, known) and 'ENDED' or nil
end

-- Returns the due for a chain whose new slots count after `after`: '=' to keep its own, 'HELD' if it may have moved on.
local function kept_due(chain, due, after)
  local standing = tonumber(redis.call('ZSCORE', LANE, chain) or '-1')
  if standing <= math.max(now, after) then
    return '='
  end
  return (standing >= CLAIMED or tonumber(due) <= now) and 'HELD' or due
end

-- Whether the chain of the stored record waits for a slot later than `latest`: it has run those before.
local function has_moved_on(id, stored, latest)
  local standing = tonumber(redis.call('ZSCORE', LANE, id .. version_of(stored)) or '-1')
  return standing > latest and standing < CLAIMED
end

-- Returns the record and due to write in place of the stored record; or nil and the answer that says why not.
local function in_place(i, stored)
  local record, due, options = ARGV[i + 1], ARGV[i + 2], options_of and options_of[i]
  if due == '=' or (options and options.after) then
    if version_of(stored) ~= version_of(record) then
      return nil, stored
    end
    if due ~= '=' then
      due = kept_due(ARGV[i] .. version_of(record), due, options.after)
      if due == 'HELD' then
        return nil, due
      end
    end
    record = with_state(record, state_of(stored))
  elseif options then
    local latest = options.former or (options.counted and tonumber(due) <= now and tonumber(due))
    if latest and has_moved_on(ARGV[i], stored, latest) then
      return nil, 'HELD'
    end
  end
  if counts_runs(record) and is_readable(stored) and counts_runs(stored) then
    record = with_started(record, math.max(started_of(stored), started_of(record)))
  end
  return record, due
end

local function is_any_moving(groups)
  for g = 1, #groups, GROUP_LENGTH do
    for i = groups[g + 1], groups[g + 2], ROW_LENGTH do
      if where_else(ARGV[i], true) then
        return true
      end
    end
  end
  return false
end

-- Notes that the row at this position has been stored, as a new one or in place of another.
local function note_stored(i, stored, due)
  local id, record = ARGV[i], ARGV[i + 1]
  if not stored then
    added = added + 1
  elseif due ~= '=' then
    gone[#gone + 1] = id .. version_of(stored)
  end
  if due ~= '' and due ~= '=' then
    points[count + 1], points[count + 2], count = due, id .. version_of(record), count + 2
    first_due = math.min(first_due, tonumber(due))
  end
  if options_of and options_of[i] then
    optional[#optional + 1] = options_of[i]
  end
end

-- Whether a row expects no record, and cannot be of a one-off that has ended.
local function is_plainly_new(i)
  if is_draining or ARGV[i + 1] == '' or ARGV[i + 3] ~= '' then
    return false
  end
  local due_us = tonumber(ARGV[i + 2])
  return not due_us or due_us > now
end

-- Stores the rows of one bucket: reads what is stored, then writes all rows together.
local function put_together(bucket, first, last)
  local ids, n = {}, 0
  for i = first, last, ROW_LENGTH do
    n = n + 1
    ids[n] = ARGV[i]
  end
  local stored_of, fields, f = redis.call('HMGET', bucket, unpack(ids)), {}, 0
  for r = 1, n do
    local i, stored = first + (r - 1) * ROW_LENGTH, stored_of[r]
    local record, due = ARGV[i + 1], ARGV[i + 2]
    local answer = refused(record, ARGV[i + 3], stored) or (not stored and ended_answer(ids[r], record, due))
    if not answer and stored then
      record, due = in_place(i, stored)
      answer = not record and due
    end
    rows = rows + 1
    answers[rows] = answer or (stored and '=' or '+')
    if not answer then
      fields[f + 1], fields[f + 2], f = ids[r], record, f + 2
      note_stored(i, stored, due)
    end
  end
  if f > 0 then
    redis.call('HSET', bucket, unpack(fields))
  end
end

local function drop_all(members)
  for first = 1, #members, MOST_DROPPED do
    drop_occurrences(LANE, { unpack(members, first, math.min(first + MOST_DROPPED - 1, #members)) })
  end
end

-- Whether the record is readable and belongs to another uid or name.
local function is_of_another(record, whose)
  if part.epoch then
    return is_readable(record) and identity(record) ~= whose
  end
  local is_read, name = pcall(name_of, record)
  return is_read and name ~= whose
end

-- Returns the answer of a row at this position that must not be removed, or nil.
local function kept(i, stored)
  if not stored then
    return is_draining and '-' or ''
  elseif not args.moved and is_of_another(stored, ARGV[i + 1]) then
    return ''
  end
  return ARGV[i + 3] ~= '' and fingerprint_of(stored) ~= ARGV[i + 3] and stored or nil
end

local function drop_rows(groups)
  for g = 1, #groups, GROUP_LENGTH do
    local bucket = KEYS[groups[g]]
    for i = groups[g + 1], groups[g + 2], ROW_LENGTH do
      local id = ARGV[i]
      local stored = redis.call('HGET', bucket, id)
      rows = rows + 1
      answers[rows] = kept(i, stored) or '='
      if answers[rows] == '=' then
        redis.call('HDEL', bucket, id)
        gone[#gone + 1], added = id .. version_of(stored), added - 1
        drop_all(occurrences_of(id, -1))
      end
      if args.moved then
        redis.call('HDEL', LEASES, mark_of(id))
      end
    end
  end
end

local function put_rows(groups)
  for g = 1, #groups, GROUP_LENGTH do
    local bucket, first, last = KEYS[groups[g]], groups[g + 1], groups[g + 2]
    if last - first < ROW_LENGTH and is_plainly_new(first) then -- one command, not two: bulk writes consist of such rows
      rows = rows + 1
      if redis.call('HSETNX', bucket, ARGV[first], ARGV[first + 1]) == 1 then
        answers[rows] = '+'
        note_stored(first, nil, ARGV[first + 2])
      else
        answers[rows] = redis.call('HGET', bucket, ARGV[first])
      end
    else
      put_together(bucket, first, last)
    end
  end
end

local function put_occurrences()
  for _, options in ipairs(optional) do
    if options.open then
      for i = options.open[1], options.open[2], 3 do
        add_occurrence(LANE, ARGV[i], ARGV[i + 1], ARGV[i + 2])
      end
    end
  end
end

-- Writes the counts and points of the stored rows.
local function put_points(lane)
  if added == 0 and count == 2 and #gone == 0 and #optional == 0 then
    return -- no row was stored, or no chain has changed
  end
  if added ~= 0 and not part.epoch then
    redis.call('HINCRBY', META, 'c' .. lane, added)
  elseif added > 0 then
    redis.call('HSETNX', META, lane, '')
  end
  -- A point that is due no earlier than the head of its lane leaves the head as it is.
  local head = #gone == 0 and #optional == 0 and tonumber(redis.call('ZSCORE', HEADS, lane) or nil)
  if #gone > 0 then
    redis.call('ZREM', LANE, unpack(gone))
  end
  if count > 2 or (added > 0 and part.epoch) then
    redis.call('ZADD', LANE, unpack(points))
  end
  put_occurrences()
  if not head or first_due < head then
    announce_lane(lane, LANE)
  end
end

-- Returns the answer of a part that must not be written at all, or nil.
local function part_trouble()
  local trouble = shard_trouble(META, part.layout, args.owner) or (part.epoch and fence_trouble(META, part.epoch))
  if trouble then
    return trouble
  end
  is_draining = shard_state == 'draining'
  if args.moved then
    return not part.drops and redis.call('HGET', META, args.moved.from) == args.moved.batch and {} or nil
  end
  if not part.epoch then
    local entry = redis.call('HGET', META, part.lane)
    if not entry then
      return { 'GONE' }
    elseif string.sub(entry, 1, 1) == 'd' and not part.drops then
      return { 'DELETING' }
    elseif (string.find(entry, ':m:', 1, true) ~= nil) ~= (part.by_rows == true) then -- the caller's copy may be stale
      return { 'MANAGED' }
    end
  end
  if is_draining and is_any_moving(part.groups) then
    return { 'BUSY' }
  end
  return nil
end

local function put_part()
  local trouble = part_trouble()
  if trouble then
    return trouble
  end
  answers, rows, gone, added = {}, 0, {}, 0
  points, count, first_due, optional = { '+inf', '' }, 2, math.huge, {}
  if part.entry then
    redis.call('HSETNX', META, part.lane, part.entry)
    redis.call('HSETNX', META, 'c' .. part.lane, 0)
  end
  if part.kinds then
    store_texts(TEXTS, part.kinds)
  end
  if part.blobs then
    store_texts(BLOBS, part.blobs)
  end
  if part.drops then
    drop_rows(part.groups)
  else
    put_rows(part.groups)
  end
  put_points(part.lane)
  return answers
end

local replies = {}
for i, listed in ipairs(args.parts) do
  part, options_of = listed, listed.options
  META, HEADS, WAKE, LEASES, TEXTS, BLOBS, OCC, OCCREC, ENDED, LANE =
    unpack(KEYS, part.keys, part.keys + PART_KEYS - 1)
  replies[i] = put_part()
end
if args.moved and type(replies[1]) == 'table' then
  if part.drops then
    redis.call('HDEL', LEASES, BATCH)
  else
    redis.call('HSET', META, args.moved.from, args.moved.batch)
  end
end
return replies
