#!lua flags=allow-oom
--[[
  The layout record exists; the first caller's wish is what it says.
  Runs on a full server: a new leader has to be able to delete.

  KEYS  1 layout
  ARGV  layout, shards, buckets, epoch, incarnation (text), former, former_shards (absent: it is
        not being cut anew), by (name of the installation that opens it; absent: it stays),
        silence (us; after so long without a sign of life another installation's place is free)
  Reply {layout, shards, buckets, incarnation, former, former_shards}
  Error FENCED, FOREIGN (of another cluster, or of another installation that lives)
]]
-- include layout
-- include time

local LAYOUT = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local known = redis.call('HMGET', LAYOUT, 'owner', 'by', 'seen')
if args.owner and known[1] and args.owner ~= known[1] then
  return redis.error_reply('FOREIGN the index is of ' .. known[1] .. ', not of ' .. args.owner)
end
local now = server_time()
local silent = now - (tonumber(known[3]) or 0)
if args.by and known[2] and args.by ~= known[2] and silent < args.silence then
  return redis.error_reply('FOREIGN the installation ' .. known[2] .. ' looked after it '
    .. math.floor(silent / 1000000) .. ' s ago')
end
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
  redis.call('HSET', LAYOUT, 'by', args.by, 'seen', string.format('%.0f', now))
end
if args.owner then
  redis.call('HSET', LAYOUT, 'owner', args.owner)
end
return layout_record(LAYOUT)
