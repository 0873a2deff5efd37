#!lua
--[[
  From here on the index has a new layout that is filled from the former one; every reader of the layout learns
  of both. Announced again it changes nothing.

  ARGV  epoch, shards (of the new layout)
  Reply {layout, shards, buckets, incarnation, former, former_shards}
  Error OOM
]]
-- keys layout
-- include layout
-- include index
-- include fenced
local number, shards, _, _, former = unpack(layout_record())
if not former then
  redis.call('HSET', LAYOUT, 'former', number, 'former_shards', shards, 'layout', number + 1,
    'shards', args.shards, 'state', 'splitting', 'phase', 'announced', 'moved', 0, 'left', 0)
end
redis.call('HDEL', LAYOUT, 'wanted')
return layout_record()
