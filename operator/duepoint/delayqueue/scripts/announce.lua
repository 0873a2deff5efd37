#!lua
--[[
  From here on the index has a new layout that is filled from the former one; every reader of the
  layout learns of both. Announced again it changes nothing.

  KEYS  1 layout
  ARGV  epoch, shards (of the new layout)
  Reply {layout, shards, buckets, incarnation, former, former_shards}
  Error UNINIT, FENCED, OOM
]]
-- include layout

local LAYOUT = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local refused = older_term(LAYOUT, args.epoch)
if refused then
  return refused
end
if not redis.call('HGET', LAYOUT, 'former') then
  local now = redis.call('HMGET', LAYOUT, 'layout', 'shards')
  redis.call('HSET', LAYOUT, 'former', now[1], 'former_shards', now[2], 'layout', now[1] + 1,
    'shards', args.shards, 'state', 'splitting', 'phase', 'announced', 'moved', 0, 'left', 0)
end
redis.call('HDEL', LAYOUT, 'wanted')
return layout_record(LAYOUT)
