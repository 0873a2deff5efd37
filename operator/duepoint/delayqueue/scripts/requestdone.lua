#!lua
--[[
  A recorded request has this answer now, or none: it failed, and may be made again.

  KEYS  the request
  ARGV  record (position; empty = forget it)
  Reply OK
  Error OOM
]]
local args = cmsgpack.unpack(ARGV[1])
if ARGV[args.record] == '' then
  redis.call('DEL', KEYS[1])
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('SET', KEYS[1], ARGV[args.record], 'KEEPTTL')
end
return 'OK'
