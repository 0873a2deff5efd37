#!lua flags=allow-oom
--[[
  The installation that opened the index last still looks after it: no other one opens it meanwhile.

  ARGV  by (name of the installation)
  Reply 1 | 0 (it is not the one that opened it last)
]]
-- keys layout
-- include layout
-- include time
if redis.call('HGET', LAYOUT, 'by') ~= args.by then
  return 0
end
redis.call('HSET', LAYOUT, 'seen', digits(server_time()))
return 1
