#!lua flags=allow-oom
--[[
  The layout record exists; the first caller's wish is what it says. Runs on a full server: a new leader has to
  be able to delete.

  ARGV  layout, shards, buckets, epoch, incarnation (text), former, former_shards (absent: it is
        not being cut anew), by (name of the installation that opens it; absent: it stays),
        silence (us; after so long without a sign of life another installation's place is free)
  Reply {layout, shards, buckets, incarnation, former, former_shards}
  Error FOREIGN (also: of another installation that lives)
]]
-- keys layout
-- include layout
-- include time
local known = redis.call('HMGET', LAYOUT, 'by', 'seen')
local now = server_time()
local silent = now - (tonumber(known[2]) or 0)
if args.by and known[1] and args.by ~= known[1] and silent < args.silence then
  return redis.error_reply('FOREIGN the installation ' .. known[1] .. ' looked after it '
    .. math.floor(silent / 1000000) .. ' s ago')
end
-- include fenced
if redis.call('HEXISTS', LAYOUT, 'layout') == 0 then
  redis.call('HSET', LAYOUT, 'layout', args.layout, 'shards', args.shards, 'buckets', args.buckets,
    'state', 'stable', 'incarnation', args.incarnation)
  if args.former then
    redis.call('HSET', LAYOUT, 'former', args.former, 'former_shards', args.former_shards,
      'state', 'splitting', 'phase', 'announced', 'moved', 0, 'left', 0)
  end
end
if args.by then
  redis.call('HSET', LAYOUT, 'by', args.by, 'seen', digits(now))
end
if args.owner then
  redis.call('HSET', LAYOUT, 'owner', args.owner)
end
return layout_record()
