-- include members
-- include time
-- Scores of claimed points: 2^52 + the expiry of their claim.
local MOST_VALUES = 4000 -- unpack() carries 7,900, and a claim whose chains were planned may hold more points

-- Returns an expiry that no other claim of the shard has, so that the score identifies the claim.
local function free_token(token)
  while redis.call('ZCOUNT', CLAIMS, token, token) > 0 do
    token = token + 1
  end
  return token
end

-- Writes a flat {score, member, ...} list for those members that are still there.
local function change_scores(lane_key, change)
  for first = 1, #change, MOST_VALUES do
    redis.call('ZADD', lane_key, 'XX', unpack(change, first, math.min(first + MOST_VALUES - 1, #change)))
  end
end

-- Sets one score for every `step`th value of a list, if that member is still there.
local function rescore(lane_key, listed, step, score)
  local change, count = {}, 0
  score = digits(score) -- once, and not for each member
  for i = 1, #listed, step do
    change[count + 1], change[count + 2] = score, listed[i]
    count = count + 2
  end
  change_scores(lane_key, change)
end

-- Sets the end of the lease to `token`, or the next free instant after it; returns that.
local function change_lease(id, old, token, lane_keys)
  token = free_token(token)
  for _, lane_key in ipairs(lane_keys) do
    rescore(lane_key, redis.call('ZRANGE', lane_key, CLAIMED + old, CLAIMED + old, 'BYSCORE'), 1, CLAIMED + token)
  end
  redis.call('ZADD', CLAIMS, 'XX', token, id)
  return token
end
