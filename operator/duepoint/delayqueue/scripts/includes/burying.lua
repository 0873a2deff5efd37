-- How many letters of which namespace went while this script ran: name, count, name, count ...
local letters_dropped = {}

local function note_dropped(namespace)
  for i = 1, #letters_dropped, 2 do
    if letters_dropped[i] == namespace then
      letters_dropped[i + 1] = letters_dropped[i + 1] + 1
      return
    end
  end
  letters_dropped[#letters_dropped + 1], letters_dropped[#letters_dropped + 2] = namespace, 1
end

-- A letter is added, and where its namespace then has too many, or too many bytes, the oldest of that namespace
-- go. A shard that is full loses the oldest of the namespace that takes most.
local MOST_COUNTED = 100 -- letters of before there was a count, counted with each new one
local MOST_DROPPED = 100 -- letters that go for one that comes

local function range_of_letters(namespace)
  return '[' .. namespace .. '\0', '(' .. namespace .. '\1'
end

local function drop_oldest_letter(dead, order, sums, namespace)
  local from, to = range_of_letters(namespace)
  local member = redis.call('ZRANGE', order, from, to, 'BYLEX', 'LIMIT', 0, 1)[1]
  if not member then
    return false
  end
  local milliseconds, number, bytes = struct.unpack('>I8I8I4', member, #namespace + 2)
  subtract_letter(order, sums, member, namespace, bytes)
  if redis.call('XDEL', dead, string.format('%.0f-%.0f', milliseconds, number)) == 1 then
    redis.call('HINCRBY', sums, 'd:' .. namespace, 1)
    note_dropped(namespace)
  end
  return true
end

-- Letters that an older version has buried, from the newest on, some with each burial.
local function count_older_letters(dead, order, sums)
  local from = redis.call('HGET', sums, 'from')
  if from == '0' then
    return
  end
  local found = redis.call('XREVRANGE', dead, from and '(' .. from or '+', '-', 'COUNT', MOST_COUNTED)
  for _, letter in ipairs(found) do
    count_letter(order, sums, letter[1], letter[2])
  end
  redis.call('HSET', sums, 'from', #found == MOST_COUNTED and found[#found][1] or '0')
end

local function has_too_much(order, sums, namespace, limits)
  local count = redis.call('ZLEXCOUNT', order, range_of_letters(namespace))
  local bytes = tonumber(redis.call('HGET', sums, 'b:' .. namespace)) or 0
  return count > limits.entries or bytes > limits.bytes and count > 1
end

local function greatest_namespace(sums)
  local all, greatest, most = redis.call('HGETALL', sums), nil, 0
  for i = 1, #all, 2 do
    local bytes = string.sub(all[i], 1, 2) == 'b:' and tonumber(all[i + 1]) or 0
    if bytes > most then
      greatest, most = string.sub(all[i], 3), bytes
    end
  end
  return greatest
end

-- `limits`: entries and bytes of one namespace, and of the shard the entries of all.
local function bury_letter(dead, order, sums, limits, fields)
  count_older_letters(dead, order, sums)
  local id = redis.call('XADD', dead, '*', unpack(fields))
  local namespace = count_letter(order, sums, id, fields)
  for _ = 1, MOST_DROPPED do
    if not has_too_much(order, sums, namespace, limits)
      or not drop_oldest_letter(dead, order, sums, namespace) then
      break
    end
  end
  for _ = 1, MOST_DROPPED do
    local greatest = redis.call('ZLEXCOUNT', order, '(', '+') > limits.all and greatest_namespace(sums)
    if not greatest or not drop_oldest_letter(dead, order, sums, greatest) then
      break
    end
  end
end
