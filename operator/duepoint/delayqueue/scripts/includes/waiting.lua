-- include active
-- include members
-- Slots that wait for a run of their schedule to end: a ZSET for each schedule, member -> slot, and
-- the empty member at infinity. What is in it need not be true: a member that has no point, or is
-- of an older timing, is taken out where it is met. A script looks at the oldest only.
-- And whether a run is being tried: what stands of it in the lane.
local MOST_WAITING = 1000 -- looked at in one script
local MOST_CALLED = 100 -- called at once; each that starts calls the next
-- Kinds under which a run is tried, by the length of its name; manual and backfilled ones carry a tag.
local KINDS_OF = { [8] = { 1, 2, 3 }, [12] = { 4, 5 } }

local RUNNING, REPLACED = 'A', 'R'

local function state_of_run(value)
  return string.sub(value, 1, 1)
end

local function is_of_job(value)
  return string.sub(value, 2, 2) == 'J'
end

-- Scores of the occurrences by which these runs are being tried or wait to be, and these; false
-- where there is none.
local function tried_scores(fields, values)
  local members, of, scores, found = {}, {}, {}, {}
  for i, run in ipairs(fields) do
    scores[i] = false
    for _, kind in ipairs(values[i] and KINDS_OF[#run] or {}) do
      of[#of + 1] = i
      members[#members + 1] = schedule .. string.sub(values[i], 3, 6) .. string.char(kind) .. run
    end
  end
  for j, score in ipairs(#members > 0 and redis.call('ZMSCORE', LANE, unpack(members)) or {}) do
    if score and not scores[of[j]] then
      scores[of[j]], found[of[j]] = tonumber(score), members[j]
    end
  end
  return scores, found
end

-- Due at once, unless a worker holds it; how many (0 or 1).
local function hasten(member, score, now)
  if score > now and score < CLAIMED then
    redis.call('ZADD', LANE, 'XX', digits(now), member)
    return 1
  end
  return 0
end

-- The first members that wait, oldest slot first, and their scores. What does not wait any more, or
-- is of an older timing, is taken from the list; the latter is due at once, to end: third, how many.
local function waiting_members(now, most)
  local members, scores, left, stale = {}, {}, MOST_WAITING, 0
  while left > 0 and #members < most do
    local listed = redis.call('ZRANGE', WAITING, '-inf', '(+inf', 'BYSCORE', 'LIMIT', #members,
      math.min(left, most - #members))
    if #listed == 0 then
      break
    end
    local gone = {}
    for i, found in ipairs(redis.call('ZMSCORE', LANE, unpack(listed))) do
      local member, score = listed[i], tonumber(found or 'nil')
      if score and string.byte(member, KIND_POSITION) == QUEUED and string.sub(member, 9, 12) ~= version then
        stale = stale + hasten(member, score, now)
        score = nil
      end
      if score then
        members[#members + 1], scores[#scores + 1] = member, score
      else
        gone[#gone + 1] = member
      end
    end
    if #gone > 0 then
      redis.call('ZREM', WAITING, unpack(gone))
    end
    left = left - #listed
  end
  return members, scores, stale
end

-- As many of those that wait, the oldest first, have their turn; how many are due at once by this.
local function call_up(now, most)
  if most <= 0 then
    return 0
  end
  local members, scores, called = waiting_members(now, math.min(most, MOST_CALLED))
  for i, member in ipairs(members) do
    called = called + hasten(member, scores[i], now)
  end
  return called
end
