#!lua
--[[
  The first request with an idempotency key is recorded; a later one gets what stands there.

  KEYS  the request, what the requests of its namespace in a span of time take: how many, and bytes
  ARGV  record (position), most, most_bytes (of a namespace in the span), seconds (for which both are kept)
  Reply what stood there already, '' where it was recorded now, false where the namespace has had too many
  Error OOM
]]
local OVERHEAD = 150 -- bytes that Redis takes for a key beside its value, about
local args = cmsgpack.unpack(ARGV[1])
local found = redis.call('GET', KEYS[1])
if found then
  return found
end
local taken = redis.call('HMGET', KEYS[2], 'n', 'b')
if tonumber(taken[1] or 0) >= args.most or tonumber(taken[2] or 0) >= args.most_bytes then
  return false
end
redis.call('HINCRBY', KEYS[2], 'b', OVERHEAD + #ARGV[args.record])
if redis.call('HINCRBY', KEYS[2], 'n', 1) == 1 then
  redis.call('EXPIRE', KEYS[2], args.seconds)
end
redis.call('SET', KEYS[1], ARGV[args.record], 'EX', args.seconds)
return ''
