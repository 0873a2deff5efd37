-- The log of a lane (a namespace, or a set) in a shard is a stream of its dead letters. The first field of each entry is the
-- total of bytes ever added, this entry included: the difference to the last one is the size of all entries behind it.
-- `logs` has the lanes that have a log, by the time of their last letter (s); a log without new letters for long expires.
local LOG_OVERHEAD, LOG_KEPT, MOST_DROPPED = 64, 7776000, 100 -- bytes of an entry beside its texts; seconds; at a time
local letters_dropped = {} -- the lane of each dropped letter

local function taken_at(entry)
  return entry and tonumber(entry[2][2]) or 0
end

-- Adds a letter. `log`: key (position), lane, its most bytes. Without `id` the entry gets one that no other log here has.
local function add_to_log(logs, log, fields, id)
  local key, now, bytes = KEYS[log.key], server_time(), LOG_OVERHEAD
  for _, text in ipairs(fields) do
    bytes = bytes + #text
  end
  local taken = taken_at(redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]) + bytes
  id = id or string.format('%.0f-%.0f', math.floor(now / 1000), redis.call('HINCRBY', META, 'letters', 1))
  if redis.pcall('XADD', key, id, 'taken', digits(taken), unpack(fields)).err then -- the server's clock was ahead
    redis.call('XADD', key, '*', 'taken', digits(taken), unpack(fields))
  end
  for _ = 1, MOST_DROPPED do
    local oldest = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
    if taken - taken_at(oldest) <= log.bytes then
      break
    end
    redis.call('XDEL', key, oldest[1])
    letters_dropped[#letters_dropped + 1] = log.lane
  end
  redis.call('EXPIRE', key, LOG_KEPT)
  redis.call('ZADD', logs, digits(math.floor(now / 1000000)), log.lane)
  redis.call('ZREMRANGEBYSCORE', logs, '-inf', digits(math.floor(now / 1000000) - LOG_KEPT))
end
