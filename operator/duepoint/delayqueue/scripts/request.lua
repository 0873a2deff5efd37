#!lua
--[[
  The first request with an idempotency key is recorded; a later one gets what stands there.

  KEYS  the request, the number of requests of its set in a span of time
  ARGV  record (position), most (requests of a set in the span), seconds (for which both are kept)
  Reply what stood there already, '' where it was recorded now, false where the set has had too many
  Error OOM
]]
local args = cmsgpack.unpack(ARGV[1])
local found = redis.call('GET', KEYS[1])
if found then
  return found
end
if tonumber(redis.call('GET', KEYS[2]) or 0) >= args.most then
  return false
end
if redis.call('INCR', KEYS[2]) == 1 then
  redis.call('EXPIRE', KEYS[2], args.seconds)
end
redis.call('SET', KEYS[1], ARGV[args.record], 'EX', args.seconds)
return ''
