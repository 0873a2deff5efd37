#!lua flags=allow-oom
--[[
  The layout record exists; the first caller's wish is what it says.
  Runs on a full server: a new leader has to be able to delete.

  KEYS  1 layout
  ARGV  layout, shards, buckets, epoch, incarnation (text), former, former_shards (absent: it is
        not being cut anew), by (name of the installation that opens it; absent: it stays)
  Reply {layout, shards, buckets, incarnation, former, former_shards}
  Error FENCED
]]
-- include layout

local LAYOUT = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local newest = tonumber(redis.call('HGET', LAYOUT, 'epoch')) or 0
if args.epoch < newest then
  return redis.error_reply('FENCED term ' .. args.epoch .. ' is older than ' .. newest)
end
if redis.call('EXISTS', LAYOUT) == 0 then
  redis.call('HSET', LAYOUT, 'layout', args.layout, 'shards', args.shards, 'buckets', args.buckets,
    'state', 'stable', 'incarnation', args.incarnation)
  if args.former then
    redis.call('HSET', LAYOUT, 'former', args.former, 'former_shards', args.former_shards,
      'state', 'splitting', 'phase', 'announced', 'moved', 0, 'left', 0)
  end
end
redis.call('HSET', LAYOUT, 'epoch', args.epoch)
if args.by then
  redis.call('HSET', LAYOUT, 'by', args.by)
end
return layout_record(LAYOUT)
