#!lua
--[[
  Members of a set in shards of one server. A row says what it expects under its id: nothing, or the
  record with a fingerprint. As expected, it is stored whole; otherwise nothing changes, and what stands there is the
  answer, so that the caller decides anew. A row without a record only asks. No id twice. A one-off of the past that
  has ended and left a short while ago (ended.lua) is not stored again: the request was repeated. Each shard is a part:
  what is wrong with one is its own answer, and the others are written.

  KEYS  for each part meta, heads, wake, leases, interned, ended_even, ended_odd, lane; buckets
  ARGV  parts {{keys (position of the first in KEYS), layout, incarnation, lane (number), numbers {number ...}: those of
        the rules in the records, by_rows (for the rows of the set), groups {bucket (position in KEYS), from, to, ...}}}; a row is id, record, due of its
        chain (us; '' for none, '=': the chain is left alone), the fingerprint that is expected ('': nothing stands there)
  Reply for each part {answer of each row}: '+' (stored, new) | '=' (stored, in place of another) | '-' (nothing here, in
        a draining shard: see the new one) | '' (nothing stands there) | the record that stands there
        | '!' and the fingerprint of a one-off that has ended;
        or {BUSY}: a row is on its way to another shard | {GONE}: the shard does not know the set
        | {DELETING}: its members are being removed | {MANAGED}: they follow rows, and by_rows is not set, or the other
        way round; nothing was written; or the text of an error: UNINIT, FOREIGN,
        WRONGLAYOUT (also: a number stands for no text any more); nothing was written
  Error OOM
]]
local META, HEADS, WAKE, LEASES, INTERNED, ENDED_EVEN, ENDED_ODD, LANE -- of the part that is being written
local PART_KEYS = 8
-- include shardcheck
-- include time
-- include wake
-- include definition
-- include ended
-- include managed
-- include moves
-- include numbers

local args = cmsgpack.unpack(ARGV[1])
local GROUP_LENGTH, ROW_LENGTH = 3, 4
local now, is_draining = server_time(), false

-- The answer where nothing is written, or nil.
local function refused(record, expected, stored)
  if not stored then
    if is_draining then
      return '-'
    end
    return (record == '' or expected ~= '') and '' or nil
  end
  if record == '' or expected == '' or string.sub(stored, 8, 11) ~= expected then
    return stored
  end
  return nil
end

-- The answer where this one-off has ended; one of the future cannot have.
local function ended_answer(id, record, due)
  local due_us = tonumber(due)
  local fingerprint = due_us and due_us <= now and ended_as(id, record)
  return fingerprint and '!' .. fingerprint or nil
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

-- What the rows of this part have changed so far.
local answers, rows, gone, added, points, count, first_due, first_id

-- The row that begins there has been stored, as a new one or in place of another.
local function note_stored(i, stored)
  local id, record, due = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if not stored then
    added = added + 1
  elseif due ~= '=' then
    gone[#gone + 1] = id .. version_of(stored)
  end
  if due ~= '' and due ~= '=' then
    points[count + 1], points[count + 2], count = due, id .. version_of(record), count + 2
    local due_us = tonumber(due)
    if due_us < first_due then
      first_due, first_id = due_us, id
    end
  end
end

-- Whether a row wants nothing to stand there, and cannot be of a one-off that has ended.
local function is_plainly_new(i)
  if is_draining or ARGV[i + 1] == '' or ARGV[i + 3] ~= '' then
    return false
  end
  local due_us = tonumber(ARGV[i + 2])
  return not due_us or due_us > now
end

-- Rows of one bucket: what stands there is read first, then all are written together.
local function put_together(bucket, first, last)
  local ids, n = {}, 0
  for i = first, last, ROW_LENGTH do
    n = n + 1
    ids[n] = ARGV[i]
  end
  local stored_of, fields, f = redis.call('HMGET', bucket, unpack(ids)), {}, 0
  for r = 1, n do
    local i, stored = first + (r - 1) * ROW_LENGTH, stored_of[r]
    local record = ARGV[i + 1]
    local answer = refused(record, ARGV[i + 3], stored) or (not stored and ended_answer(ids[r], record, ARGV[i + 2]))
    rows = rows + 1
    answers[rows] = answer or (stored and '=' or '+')
    if not answer then
      fields[f + 1], fields[f + 2], f = ids[r], record, f + 2
      note_stored(i, stored)
    end
  end
  if f > 0 then
    redis.call('HSET', bucket, unpack(fields))
  end
end

local function put_rows(groups)
  for g = 1, #groups, GROUP_LENGTH do
    local bucket, first, last = KEYS[groups[g]], groups[g + 1], groups[g + 2]
    if last - first < ROW_LENGTH and is_plainly_new(first) then -- one command instead of two, of which a bulk write consists
      rows = rows + 1
      if redis.call('HSETNX', bucket, ARGV[first], ARGV[first + 1]) == 1 then
        answers[rows] = '+'
        note_stored(first, nil)
      else
        answers[rows] = redis.call('HGET', bucket, ARGV[first])
      end
    else
      put_together(bucket, first, last)
    end
  end
end

-- Counts and points of what was stored.
local function put_points(lane)
  if added == 0 and count == 2 and #gone == 0 then
    return -- no row was stored, or no chain has changed
  end
  if added > 0 then
    redis.call('HINCRBY', META, 'c' .. lane, added)
  end
  -- A point that comes no earlier than those that are there leaves the head of its lane as it is.
  local head = #gone == 0 and tonumber(redis.call('ZSCORE', HEADS, lane) or nil)
  if #gone > 0 then
    redis.call('ZREM', LANE, unpack(gone))
  end
  if count > 2 then
    redis.call('ZADD', LANE, unpack(points))
  end
  if not head or first_due < head then
    local before = shard_head()
    refresh_head(lane, LANE)
    announce_head(before, now, first_id, first_due)
  end
end

local function put_part(part)
  local trouble = shard_trouble(META, part, args.owner)
  if trouble then
    return trouble
  end
  local entry = redis.call('HGET', META, 's' .. part.lane)
  if not entry then
    return { 'GONE' }
  elseif string.sub(entry, 1, 1) == 'd' then
    return { 'DELETING' }
  elseif is_changed_by_others(entry, part.by_rows) then
    return { 'MANAGED' }
  end
  is_draining = shard_state == 'draining'
  if is_draining and is_any_moving(part.groups) then
    return { 'BUSY' }
  end
  local unknown = use_numbers(part.numbers)
  if unknown then
    return unknown
  end
  answers, rows, gone, added = {}, 0, {}, 0
  points, count, first_due, first_id = { '+inf', '' }, 2, math.huge, nil
  put_rows(part.groups)
  put_points(part.lane)
  return answers
end

local replies = {}
for i, part in ipairs(args.parts) do
  META, HEADS, WAKE, LEASES, INTERNED, ENDED_EVEN, ENDED_ODD, LANE = unpack(KEYS, part.keys, part.keys + PART_KEYS - 1)
  replies[i] = put_part(part)
end
return replies
