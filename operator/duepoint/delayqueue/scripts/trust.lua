#!lua flags=allow-oom
--[[
  The shard is suspect no longer, once nothing that was due by then is left: none in a lane, none that waits to
  be compared, and none under a claim, whose owner may have settled it before the server went back.

  KEYS  then lanes
  ARGV  layout, epoch, back (us, as text: that which was compared), lanes (numbers, in the order of KEYS)
  Reply ended | due (in a lane) | held | claimed
]]
-- keys meta claims leases
-- include shard
-- include fenced
-- include record
-- include time

local back = tonumber(meta[6])
if back and digits(back) ~= args.back then
  return 'due' -- it went back once more meanwhile
end
back = back or 0
local key_of, held = {}, CLAIMED + HELD_TOKEN
for i, lane in ipairs(args.lanes) do
  local key = KEYS[3 + i]
  key_of[lane] = key
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) <= back then
    return 'due'
  end
  if redis.call('ZCOUNT', key, held, held) > 0 then
    return 'held'
  end
end

local function holds_old_points(id, band)
  local dues, lanes = read_record(redis.call('HGET', LEASES, id))
  for member, due in pairs(dues) do
    for _, lane in ipairs(tonumber(due) <= back and lanes or {}) do
      local score = key_of[lane] and redis.call('ZSCORE', key_of[lane], member)
      if score and tonumber(score) == band then
        return true
      end
    end
  end
  return false
end

local claims = redis.call('ZRANGE', CLAIMS, 0, -1, 'WITHSCORES')
for i = 1, #claims, 2 do
  if #claims[i] == CLAIM_ID_LENGTH and holds_old_points(claims[i], CLAIMED + tonumber(claims[i + 1])) then
    return 'claimed'
  end
end
redis.call('HDEL', META, 'back', 'compared')
redis.call('ZREM', CLAIMS, HELD)
return 'ended'
