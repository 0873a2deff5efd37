-- Runs that count for a concurrency policy, in a HASH for each schedule that has one: slot and run
-- tag (the end of a member) -> state, target, timing version (4 bytes), name of the Job or ''. Under
-- the empty field stands what the set is complete for: the server's history and the definition.
-- Whatever is not true any more is found out before anything is decided by it, and a set that is
-- gone is made again, so the keys may expire. Slots that wait stand in a ZSET: member -> slot.

local ACTIVE, REPLACED, SURPLUS = 'A', 'R', 'F'
local JOB = 'J'
local KEPT_SECONDS = 86400
local MOST_ASKED = 3900 -- members in one command
local QUEUED = 3
-- Kinds under which a run is tried; manual and backfilled ones carry a tag.
local KINDS_OF = { [8] = { 1, 2, 3 }, [12] = { 4, 5 } }

local function state_of_run(value)
  return string.sub(value, 1, 1)
end

local function is_of_job(value)
  return string.sub(value, 2, 2) == JOB
end

-- Score of the occurrence by which the run is being tried or waits to be; nil where there is none.
local function score_of_run(lane_key, schedule, run, value)
  local members = {}
  for _, kind in ipairs(KINDS_OF[#run] or {}) do
    members[#members + 1] = schedule .. string.sub(value, 3, 6) .. string.char(kind) .. run
  end
  if #members == 0 then
    return nil
  end
  for i, score in ipairs(redis.call('ZMSCORE', lane_key, unpack(members))) do
    if score then
      return tonumber(score), members[i]
    end
  end
  return nil
end

-- Due at once, unless a worker holds it.
local function hasten(lane_key, member, score, now)
  if score > now and score < CLAIMED then
    redis.call('ZADD', lane_key, 'XX', string.format('%.0f', now), member)
    return 1
  end
  return 0
end

-- Members that wait, oldest slot first, and their scores. What does not wait any more, or is of an
-- older timing, is taken from the list; the latter is due at once, to be told of.
local function waiting_members(waiting, lane_key, version, now)
  local listed, members, scores = redis.call('ZRANGE', waiting, 0, -1), {}, {}
  if listed[#listed] == '' then
    listed[#listed] = nil
  end
  for first = 1, #listed, MOST_ASKED do
    local last = math.min(first + MOST_ASKED - 1, #listed)
    for i, found in ipairs(redis.call('ZMSCORE', lane_key, unpack(listed, first, last))) do
      local member, score = listed[first + i - 1], tonumber(found or 'nil')
      if score and string.byte(member, 13) == QUEUED and string.sub(member, 9, 12) ~= version then
        hasten(lane_key, member, score, now)
        score = nil
      end
      if score then
        members[#members + 1], scores[#scores + 1] = member, score
      else
        redis.call('ZREM', waiting, member)
      end
    end
  end
  return members, scores
end
