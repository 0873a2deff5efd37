-- The last slots of schedules that are gone (history.lua); ids that have none are passed over.
local HISTORY_OVERHEAD = 64 -- bytes of a field beside its value, about
local MOST_FORGOTTEN = 4000 -- unpack() carries 7,900 values

local function forget_history(key, ids)
  local bytes = 0
  for first = 1, #ids, MOST_FORGOTTEN do
    local last = math.min(first + MOST_FORGOTTEN - 1, #ids)
    local gone = {}
    for i, records in ipairs(redis.call('HMGET', key, unpack(ids, first, last))) do
      if records then
        bytes = bytes + #records + HISTORY_OVERHEAD
        gone[#gone + 1] = ids[first + i - 1]
      end
    end
    if #gone > 0 then
      redis.call('HDEL', key, unpack(gone))
    end
  end
  if bytes > 0 and redis.call('HINCRBY', key, '', -bytes) <= 0 then
    redis.call('HDEL', key, '')
  end
end
