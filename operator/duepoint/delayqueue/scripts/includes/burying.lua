-- include deadletters
-- Add a letter. A group with too many letters or bytes loses its oldest, and a full shard the oldest of the
-- group that takes most.
local MOST_DROPPED = 100 -- for one that comes
local letters_dropped = {} -- the group of each

local function range_of_letters(group)
  return '[' .. group .. '\0', '(' .. group .. '\1'
end

local function drop_oldest_letter(group)
  local from, to = range_of_letters(group)
  local member = redis.call('ZRANGE', LETTERS, from, to, 'BYLEX', 'LIMIT', 0, 1)[1]
  if not member then
    return false
  end
  local milliseconds, number, bytes = struct.unpack('>I8I8I4', member, #group + 2)
  subtract_letter(member, group, bytes)
  if redis.call('XDEL', DEAD, string.format('%.0f-%.0f', milliseconds, number)) == 1 then
    redis.call('HINCRBY', LETTER_SUMS, 'd:' .. group, 1)
    letters_dropped[#letters_dropped + 1] = group
  end
  return true
end

local function has_too_much(group, limits)
  if string.sub(group, -#OF_MEMBERS) == OF_MEMBERS then
    limits = limits.members
  end
  local count = redis.call('ZLEXCOUNT', LETTERS, range_of_letters(group))
  local bytes = tonumber(redis.call('HGET', LETTER_SUMS, 'b:' .. group)) or 0
  return count > limits.entries or bytes > limits.bytes and count > 1
end

local function greatest_group()
  local all, greatest, most = redis.call('HGETALL', LETTER_SUMS), nil, 0
  for i = 1, #all, 2 do
    local bytes = string.sub(all[i], 1, 2) == 'b:' and tonumber(all[i + 1]) or 0
    if bytes > most then
      greatest, most = string.sub(all[i], 3), bytes
    end
  end
  return greatest
end

-- `limits`: entries and bytes of a namespace's Schedules, the same of its members, and of the shard the entries of all.
local function bury_letter(limits, fields)
  local group, dropped = count_letter(redis.call('XADD', DEAD, '*', unpack(fields)), fields), 0
  while dropped < MOST_DROPPED and has_too_much(group, limits) and drop_oldest_letter(group) do
    dropped = dropped + 1
  end
  for _ = 1, MOST_DROPPED do
    local greatest = redis.call('ZLEXCOUNT', LETTERS, '(', '+') > limits.all and greatest_group()
    if not greatest or not drop_oldest_letter(greatest) then
      break
    end
  end
end
