-- include time
-- include definition
-- What is kept of one-offs that leave (ended.lua).
local ENDED_TURN, MOST_ENDED = 60000000, 4000

local function newest_ended(turn)
  return turn % 2 == 0 and ENDED_EVEN or ENDED_ODD
end

-- `listed`: id, record, id, record ...
local function remember_ended(listed, now)
  local values, count = {}, 0
  for i = 1, #listed, 2 do
    local instant = instant_of(listed[i + 1])
    if instant then
      values[count + 1], values[count + 2], count = listed[i], instant .. fingerprint_of(listed[i + 1]), count + 2
    end
  end
  if count == 0 then
    return
  end
  local known = redis.call('HMGET', META, 'ended', 'ended_since')
  local turn, since = tonumber(known[1] or 0), tonumber(known[2] or 0)
  local newest = newest_ended(turn)
  if math.abs(now - since) > ENDED_TURN or redis.call('HLEN', newest) > MOST_ENDED then
    newest = newest_ended(turn + 1)
    redis.call('EXPIRE', newest, 0) -- deletes it, with the rights of a worker
    redis.call('HSET', newest, '', '') -- see init.lua
    redis.call('HSET', META, 'ended', digits(turn + 1), 'ended_since', digits(now))
  end
  for first = 1, count, MOST_ENDED do
    redis.call('HSET', newest, unpack(values, first, math.min(first + MOST_ENDED - 1, count)))
  end
end
