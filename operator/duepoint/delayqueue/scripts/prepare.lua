#!lua
--[[
  A user's stream exists, without an entry if need be: its place is not taken for free before its first slot.
  What is there already, of any type, is left alone. So does what is counted of it: a script that names a key
  that is not there has to wait while its slot moves to another node.

  ARGV  nothing by name
  Reply 1 where it was made, else 0
  Error OOM
]]
-- keys stream state
redis.call('HSETNX', STATE, 'in', 0)
if redis.call('EXISTS', STREAM) == 1 then
  return 0
end
redis.call('XDEL', STREAM, redis.call('XADD', STREAM, '*', 'id', ''))
return 1
