#!lua
--[[
  A user's stream exists, without an entry if need be: its place is not taken for free before its
  first slot. What is there already, of whatever type, is left alone.

  KEYS  1 stream
  ARGV  nothing by name
  Reply 1 where it was made, else 0
  Error OOM
]]
local STREAM = KEYS[1]
if redis.call('EXISTS', STREAM) == 1 then
  return 0
end
redis.call('XDEL', STREAM, redis.call('XADD', STREAM, '*', 'id', ''))
return 1
