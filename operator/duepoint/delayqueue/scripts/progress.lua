#!lua flags=allow-oom
--[[
  How far the move to the new layout has come, for status and commands; with `done` it is at its end and the
  former layout is forgotten.

  ARGV  epoch, layout (number of the new one), phase (text), moved, left (definitions),
        waiting (text: for what, or empty), done (bool)
  Reply {layout, shards, buckets, incarnation, former, former_shards}
  Error WRONGLAYOUT
]]
-- keys layout
-- include layout
-- include index
-- include fenced
if tonumber(layout_record()[1]) ~= args.layout then
  return redis.error_reply('WRONGLAYOUT the index was cut anew meanwhile')
end
redis.call('HSET', LAYOUT, 'phase', args.phase, 'moved', args.moved, 'left', args.left, 'waiting', args.waiting)
if args.done then
  redis.call('HDEL', LAYOUT, 'former', 'former_shards', 'phase', 'waiting')
  redis.call('HSET', LAYOUT, 'state', 'stable')
end
return layout_record()
