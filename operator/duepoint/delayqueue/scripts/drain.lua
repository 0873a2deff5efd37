#!lua
--[[
  The shard takes no new schedules from here on; what it holds can be edited, deleted, claimed and
  settled until it has moved.

  KEYS  1 meta
  ARGV  layout, epoch
  Reply state before
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta

local META = KEYS[1]
local refused = fenced_refusal(META)
if refused then
  return refused
end
redis.call('HSET', META, 'state', 'draining')
return shard_state
