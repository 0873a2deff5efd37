#!lua
--[[
  A write that stands behind all that was written to this server before, by whichever connection: WAIT and WAITAOF ask
  for the last write of their own connection.

  ARGV  layout
  Reply 'OK'
  Error OOM
]]
-- keys meta
-- include shard

redis.call('HSET', META, 'confirm', '')
return 'OK'
