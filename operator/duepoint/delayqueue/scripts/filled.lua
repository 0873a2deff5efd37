#!lua flags=allow-oom
--[[
  Nothing more will be brought into this shard; what is still under way to it comes too late.

  KEYS  1 meta  2 imported
  ARGV  layout, epoch
  Reply state before
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta

local META, IMPORTED = KEYS[1], KEYS[2]
local refused = fenced_refusal(META)
if refused then
  return refused
end
redis.call('HSET', META, 'state', 'open')
redis.call('UNLINK', IMPORTED)
return shard_state
