#!lua
--[[
  A recorded request has this answer now, or none: it failed, and may be made again.

  KEYS  the request
  ARGV  record (position; empty = forget it), before (position; absent: any): only where this stands there
  Reply OK | OTHER (something else stands there; nothing was changed)
  Error OOM
]]
local args = cmsgpack.unpack(ARGV[1])
if args.before and redis.call('GET', KEYS[1]) ~= ARGV[args.before] then
  return 'OTHER'
end
if ARGV[args.record] == '' then
  redis.call('DEL', KEYS[1])
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('SET', KEYS[1], ARGV[args.record], 'KEEPTTL')
end
return 'OK'
