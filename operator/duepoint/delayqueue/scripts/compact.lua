#!lua
--[[
  How this server would store a bucket of definitions: found out by a hash of its own, which is gone afterwards.
  Asked in this way because CONFIG GET also reads passwords.

  ARGV  value (bytes of the longest value), entries (most fields)
  Reply {0 or 1: a value of that length is stored compactly, 0 or 1: so are that many fields}
  Error OOM
]]
-- keys probe
local args = cmsgpack.unpack(ARGV[1])

local function is_compact()
  local encoding = redis.call('OBJECT', 'ENCODING', PROBE)
  redis.call('UNLINK', PROBE)
  return encoding == 'hashtable' and 0 or 1
end

redis.call('UNLINK', PROBE)
redis.call('HSET', PROBE, 'field', string.rep('x', args.value))
local value = is_compact()
local fields = {}
for number = 1, args.entries do
  fields[2 * number - 1], fields[2 * number] = number, ''
end
redis.call('HSET', PROBE, unpack(fields))
return { value, is_compact() }
