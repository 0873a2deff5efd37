-- A claim is an id in `claims` (score = lease expiry), its points carry 2^52 + expiry as score,
-- and `leases` says what they were before: <id> -> {format, worker, {lane, {member, due, ...}}},
-- <id>:a -> attempts and how often alone, <id>:l -> its owner has nothing else in hand (`alone`),
-- <id>:s -> ids of the claims whose owners had nothing in hand but this one point and were not heard
-- of again (12 bytes each, suspected of having died of it), <id>:g -> given back by an owner that
-- lives, <id>:q -> last settle number, <id>:x -> its members are not those of the record any more (a
-- reclaim, plan or split took or added some).

local CHAIN_LENGTH = 12
local CLAIM_ID_LENGTH = 12

-- Chain members out of one value that has them one behind the other.
local function joined_chains(value)
  local members, count, sub = {}, 0, string.sub
  for first = 1, #value, CHAIN_LENGTH do
    count = count + 1
    members[count] = sub(value, first, first + CHAIN_LENGTH - 1)
  end
  return members
end

-- An expiry that no other claim of the shard has: the score then names the claim.
local function free_token(claims, token)
  while redis.call('ZCOUNT', claims, token, token) > 0 do
    token = token + 1
  end
  return token
end

local function drop_claim(claims, leases, id)
  redis.call('ZREM', claims, id)
  redis.call('HDEL', leases, id, id .. ':a', id .. ':l', id .. ':s', id .. ':g', id .. ':q', id .. ':x')
end

-- What a claimed point was due at, by its record; an added occurrence is not in it and was due
-- at its slot (bytes 14 to 21), which lies in the past. A chain without a due would lose the slots
-- in between if it were due now: nil, and the sweep finds out where it belongs. Anything else: now.
local function due_before(record, member, now)
  local due = record[member]
  if due then
    return due
  end
  if #member >= 21 then
    local slot = struct.unpack('>I8', string.sub(member, 14, 21))
    if slot < now then
      return slot
    end
  end
  if #member == CHAIN_LENGTH then
    return nil
  end
  return now
end

-- Writes a flat {score, member, ...} list for those members that are still there. In parts, since
-- unpack() carries 7,900 values and a claim whose chains were planned may hold more points.
local MOST_VALUES = 4000

local function change_scores(lane_key, change)
  for first = 1, #change, MOST_VALUES do
    redis.call('ZADD', lane_key, 'XX',
      unpack(change, first, math.min(first + MOST_VALUES - 1, #change)))
  end
end

-- Sets one score for every member of a flat {member, score, ...} list that is still there.
local function rescore(lane_key, found, score)
  local change = {}
  score = string.format('%.0f', score) -- once, and not for each member
  for i = 1, #found, 2 do
    change[i] = score
    change[i + 1] = found[i]
  end
  change_scores(lane_key, change)
end

-- The same for a list of members.
local function rescore_members(lane_key, members, score)
  local change = {}
  score = string.format('%.0f', score)
  for i, member in ipairs(members) do
    change[2 * i - 1] = score
    change[2 * i] = member
  end
  change_scores(lane_key, change)
end
