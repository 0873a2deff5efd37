-- Dead letters, counted by namespace. `order` (a sorted set, by text) has one member for each letter of `dead`:
-- namespace, 0, id, bytes; `sums` has for each namespace the bytes of its letters (`b:`), how many have gone
-- because there were too many (`d:`), and in `from` the oldest letter that is counted (0: all are).
local LETTER_OVERHEAD = 64 -- bytes that a letter takes beside its texts, about

-- Member in `order`, namespace and bytes of a letter with these fields: name, value, name, value ...
local function letter_member(id, fields)
  local namespace, bytes = '', LETTER_OVERHEAD
  for i = 1, #fields, 2 do
    if fields[i] == 'namespace' then
      namespace = fields[i + 1]
    end
    bytes = bytes + #fields[i] + #fields[i + 1]
  end
  local milliseconds, number = string.match(id, '(%d+)-(%d+)')
  local packed = struct.pack('>I8I8I4', tonumber(milliseconds), tonumber(number), bytes)
  return namespace .. '\0' .. packed, namespace, bytes
end

local function count_letter(id, fields)
  local member, namespace, bytes = letter_member(id, fields)
  if redis.call('ZADD', LETTERS, 'NX', 0, member) == 1 then
    redis.call('HINCRBY', LETTER_SUMS, 'b:' .. namespace, bytes)
  end
  return namespace
end

local function subtract_letter(member, namespace, bytes)
  if redis.call('ZREM', LETTERS, member) == 1 and redis.call('HINCRBY', LETTER_SUMS, 'b:' .. namespace, -bytes) <= 0 then
    redis.call('HDEL', LETTER_SUMS, 'b:' .. namespace)
  end
end
