-- An occurrence is a member of its lane, of the list `occ` (by text, so by schedule) and has a record in `occrec`.
local function range_of(schedule)
  return '[' .. schedule, '[' .. schedule .. string.rep('\255', 18)
end

local function occurrences_of(schedule, most)
  local from, to = range_of(schedule)
  return redis.call('ZRANGE', OCC, from, to, 'BYLEX', 'LIMIT', 0, most)
end

-- Adds an occurrence and returns true; an existing one, and its record, stay as they are.
local function add_occurrence(lane_key, due, member, record)
  if redis.call('ZADD', lane_key, 'NX', due, member) == 0 then
    return false
  end
  redis.call('ZADD', OCC, 0, member)
  redis.call('HSET', OCCREC, member, record)
  return true
end

local function forget_occurrences(members)
  redis.call('ZREM', OCC, unpack(members))
  redis.call('HDEL', OCCREC, unpack(members))
end

-- Removes occurrences; returns how many of them were in the lane.
local function drop_occurrences(lane_key, members)
  local dropped = redis.call('ZREM', lane_key, unpack(members))
  forget_occurrences(members)
  return dropped
end
