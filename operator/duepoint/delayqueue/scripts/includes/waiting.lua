-- Slots that wait for a run of their schedule to end: a ZSET for each schedule, member -> slot, and
-- the empty member at infinity. What is in it need not be true: a member that has no point, or is
-- of an older timing, is taken out where it is met. A script looks at the oldest only.

local QUEUED = 3
local MOST_WAITING = 1000 -- looked at in one script
local MOST_CALLED = 100 -- called at once; each that starts calls the next

local function count_waiting(waiting)
  return redis.call('ZCOUNT', waiting, '-inf', '(+inf')
end

-- The first members that wait, oldest slot first, and their scores. What does not wait any more, or
-- is of an older timing, is taken from the list; the latter is due at once, to be told of: third,
-- how many.
local function waiting_members(waiting, lane_key, version, now, most)
  local members, scores, left, stale = {}, {}, MOST_WAITING, 0
  while left > 0 and #members < most do
    local listed = redis.call('ZRANGE', waiting, '-inf', '(+inf', 'BYSCORE', 'LIMIT', #members,
      math.min(left, most - #members))
    if #listed == 0 then
      break
    end
    local gone = {}
    for i, found in ipairs(redis.call('ZMSCORE', lane_key, unpack(listed))) do
      local member, score = listed[i], tonumber(found or 'nil')
      if score and string.byte(member, 13) == QUEUED and string.sub(member, 9, 12) ~= version then
        stale = stale + hasten(lane_key, member, score, now)
        score = nil
      end
      if score then
        members[#members + 1], scores[#scores + 1] = member, score
      else
        gone[#gone + 1] = member
      end
    end
    if #gone > 0 then
      redis.call('ZREM', waiting, unpack(gone))
    end
    left = left - #listed
  end
  return members, scores, stale
end
