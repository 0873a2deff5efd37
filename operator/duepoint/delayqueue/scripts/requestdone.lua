#!lua
--[[
  A recorded request has this answer now, or none: it failed, and may be made again.

  KEYS  the request, what the requests of its namespace take
  ARGV  record (position; empty = forget it), before (position; absent: any): only where this stands there
  Reply OK | OTHER (something else stands there; nothing was changed)
  Error OOM
]]
local args = cmsgpack.unpack(ARGV[1])
local record, found = ARGV[args.record], redis.call('GET', KEYS[1])
if args.before and found ~= ARGV[args.before] then
  return 'OTHER'
end
if not found then
  return 'OK'
end
if record == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], record, 'KEEPTTL')
end
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('HINCRBY', KEYS[2], 'b', #record - #found)
end
return 'OK'
