-- include members
-- `heads` has the earliest unclaimed due of each open lane; a script that touches a lane refreshes it.
-- Its sentinel (empty member, score +inf) keeps the key alive and sorts last.
local function shard_head()
  local first = redis.call('ZRANGE', HEADS, 0, 0, 'WITHSCORES')
  if not first[1] or first[1] == '' then
    return math.huge
  end
  return tonumber(first[2])
end

-- The name of a lane is 'n' and its namespace, or 's' and the identity of its set; `meta` has a field of that name. For a set
-- it has the state of the members (o: open; p: they do not fire; d: they are being removed), their target (a
-- digest) and, behind a colon, for how many seconds ended ones stay; c<lane> counts the members.
local function is_of_set(lane)
  return string.sub(lane, 1, 1) == 's'
end

local function is_open(lane)
  local entry = is_of_set(lane) and redis.call('HGET', META, lane)
  return not entry or string.sub(entry, 1, 1) == 'o'
end

-- Whether points that are due by `back` wait for the leader (doubt.lua): those of Schedules do.
local function is_in_doubt(lane)
  return meta[8] and not is_of_set(lane)
end

-- Returns the score from which on a lane's points are handed out.
local function first_score(lane)
  return is_in_doubt(lane) and '(' .. meta[6] or '-inf'
end

local function refresh_head(lane, lane_key)
  local first = redis.call('ZRANGE', lane_key, first_score(lane), '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  if first[1] and tonumber(first[2]) < CLAIMED and is_open(lane) then
    redis.call('ZADD', HEADS, first[2], lane)
  else
    redis.call('ZREM', HEADS, lane)
  end
end
