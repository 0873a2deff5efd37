#!lua
--[[
  The record of a set is there; or, where an empty one is given, gone.

  ARGV  epoch, place, record: positions
  Reply OK
  Error UNINIT, FENCED, OOM
]]
-- keys layout sets
-- include layout
-- include index
-- include fenced
if ARGV[args.record] == '' then
  redis.call('HDEL', SETS, ARGV[args.place])
else
  redis.call('HSET', SETS, ARGV[args.place], ARGV[args.record])
end
return 'OK'
