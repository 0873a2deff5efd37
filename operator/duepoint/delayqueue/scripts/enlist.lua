#!lua
--[[
  A user's stream is one of those of its namespace, as long as there are not too many.

  ARGV  name (text), most (streams), anyhow (bool: it is one of them however many there are)
  Reply KNOWN (it was) | ENLISTED | FULL
  Error OOM
]]
-- keys streams
local args = cmsgpack.unpack(ARGV[1])
if redis.call('SISMEMBER', STREAMS, args.name) == 1 then
  return 'KNOWN'
end
if not args.anyhow and redis.call('SCARD', STREAMS) >= args.most then
  return 'FULL'
end
redis.call('SADD', STREAMS, args.name)
return 'ENLISTED'
