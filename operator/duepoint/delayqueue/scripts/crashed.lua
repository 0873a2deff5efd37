#!lua flags=allow-oom
--[[
  An owner is about to try a point with nothing else in hand: counted as lost to it, until that is taken back. The point
  is named with its due, so whatever is settled of it, it begins anew.

  ARGV  layout, id (position; the claim that has to be held, to count), point (position; member and due), by (1 or -1)
  Reply 1 or 0 (the claim is lost: nothing was counted)
]]
-- keys meta claims crashes
-- include shard
local KEPT_SECONDS = 86400
if args.by > 0 and not redis.call('ZSCORE', CLAIMS, ARGV[args.id]) then
  return 0
end
local point = ARGV[args.point]
if redis.call('HINCRBY', CRASHES, point, args.by) <= 0 then
  redis.call('HDEL', CRASHES, point)
end
redis.call('EXPIRE', CRASHES, KEPT_SECONDS)
return 1
