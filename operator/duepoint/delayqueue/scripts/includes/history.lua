-- include forgetting
-- What became of slots: a hash beside each bucket of definitions has the last records of its schedules, the oldest
-- first, one behind the other; a record begins with its length. Under '' stands how many bytes all of them take. A
-- schedule that has too many bytes loses its oldest records; where the hash has, some of its schedules lose theirs.

local function newest_records(records, most)
  local first = 1
  while #records - first + 1 > most do
    first = first + math.max(1, string.byte(records, first))
  end
  return string.sub(records, first)
end

-- Until an eighth of the room is free: first of schedules that have nothing new. The bytes that are left.
local function evict_histories(key, room, new)
  local all, bytes, gone = redis.call('HGETALL', key), 0, {}
  for i = 1, #all, 2 do
    bytes = bytes + (all[i] == '' and 0 or #all[i + 1] + HISTORY_OVERHEAD)
  end
  for _, is_new in ipairs({ false, true }) do
    for i = 1, #all, 2 do
      if bytes > room * 7 / 8 and all[i] ~= '' and (new[all[i]] ~= nil) == is_new then
        gone[#gone + 1], bytes = all[i], bytes - #all[i + 1] - HISTORY_OVERHEAD
      end
    end
  end
  for first = 1, #gone, MOST_FORGOTTEN do
    redis.call('HDEL', key, unpack(gone, first, math.min(first + MOST_FORGOTTEN - 1, #gone)))
  end
  return bytes
end

-- `one`: {key, position of ids one behind the other, position of the first record, how many records (1: the same for
-- all), bytes of one schedule, bytes of all}
local function remember(one)
  local key, joined, most, room = KEYS[one[1]], ARGV[one[2]], one[5], one[6]
  local ids, new = {}, {}
  for i = 1, #joined / ID_LENGTH do
    local id = string.sub(joined, (i - 1) * ID_LENGTH + 1, i * ID_LENGTH)
    local record = ARGV[one[3] + (one[4] == 1 and 0 or i - 1)]
    if not new[id] then
      ids[#ids + 1], new[id] = id, record
    else
      new[id] = new[id] .. record
    end
  end
  local former = redis.call('HMGET', key, '', unpack(ids))
  local bytes, fields = tonumber(former[1]) or 0, {}
  for i, id in ipairs(ids) do
    local before = former[i + 1]
    local after = newest_records((before or '') .. new[id], most)
    bytes = bytes + #after + (before and -#before or HISTORY_OVERHEAD)
    fields[2 * i - 1], fields[2 * i] = id, after
  end
  redis.call('HSET', key, '', digits(bytes), unpack(fields))
  if bytes > room then
    redis.call('HSET', key, '', digits(evict_histories(key, room, new)))
  end
end
