-- Dead letters, counted by namespace. `order` (a sorted set, by text) has one member for each letter of `dead`:
-- namespace, 0, id, bytes; `sums` has for each namespace the bytes of its letters (`b:`), how many have gone
-- because there were too many (`d:`), and in `from` the oldest letter that is counted (0: all are).
local LETTER_OVERHEAD = 64 -- bytes that a letter takes beside its texts, about

-- Whose a letter is, and its bytes; of name, value, name, value ...
local function origin_of_letter(fields)
  local namespace, bytes = '', LETTER_OVERHEAD
  for i = 1, #fields, 2 do
    if fields[i] == 'namespace' then
      namespace = fields[i + 1]
    end
    bytes = bytes + #fields[i] + #fields[i + 1]
  end
  return namespace, bytes
end

local function letter_member(id, namespace, bytes)
  local milliseconds, number = string.match(id, '(%d+)-(%d+)')
  return namespace .. '\0' .. struct.pack('>I8I8I4', tonumber(milliseconds), tonumber(number), bytes)
end

local function count_letter(order, sums, id, fields)
  local namespace, bytes = origin_of_letter(fields)
  if redis.call('ZADD', order, 'NX', 0, letter_member(id, namespace, bytes)) == 1 then
    redis.call('HINCRBY', sums, 'b:' .. namespace, bytes)
  end
  return namespace
end

local function subtract_letter(order, sums, member, namespace, bytes)
  if redis.call('ZREM', order, member) == 1
    and redis.call('HINCRBY', sums, 'b:' .. namespace, -bytes) <= 0 then
    redis.call('HDEL', sums, 'b:' .. namespace)
  end
end
