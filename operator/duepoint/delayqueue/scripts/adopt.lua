#!lua flags=allow-oom
--[[
  As `intern`, on a full server too: for what is on its way to this shard, which is nowhere to be claimed until
  it has arrived.

  KEYS  as `intern`
  ARGV  as `intern`
  Reply as `intern`
]]
-- body intern
