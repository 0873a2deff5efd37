-- Dead letters, counted by namespace, and those of members of its sets apart: the Schedules of a namespace lie in a
-- few shards, and its members in all. `order` (a sorted set, by text) has one member for each letter of `dead`:
-- group, 0, id, bytes; `sums` has for each group the bytes of its letters (`b:`) and how many have gone
-- because there were too many (`d:`).
local OF_MEMBERS = '/members' -- behind a namespace: the group of its members' letters
local LETTER_OVERHEAD = 64 -- bytes that a letter takes beside its texts, about

-- Member in `order`, group and bytes of a letter with these fields: name, value, name, value ...
local function letter_member(id, fields)
  local namespace, of_members, bytes = '', '', LETTER_OVERHEAD
  for i = 1, #fields, 2 do
    if fields[i] == 'namespace' then
      namespace = fields[i + 1]
    elseif fields[i] == 'set_id' then
      of_members = OF_MEMBERS
    end
    bytes = bytes + #fields[i] + #fields[i + 1]
  end
  local milliseconds, number = string.match(id, '(%d+)-(%d+)')
  local packed = struct.pack('>I8I8I4', tonumber(milliseconds), tonumber(number), bytes)
  local group = namespace .. of_members
  return group .. '\0' .. packed, group, bytes
end

local function count_letter(id, fields)
  local member, group, bytes = letter_member(id, fields)
  if redis.call('ZADD', LETTERS, 'NX', 0, member) == 1 then
    redis.call('HINCRBY', LETTER_SUMS, 'b:' .. group, bytes)
  end
  return group
end

local function subtract_letter(member, group, bytes)
  if redis.call('ZREM', LETTERS, member) == 1 and redis.call('HINCRBY', LETTER_SUMS, 'b:' .. group, -bytes) <= 0 then
    redis.call('HDEL', LETTER_SUMS, 'b:' .. group)
  end
end
