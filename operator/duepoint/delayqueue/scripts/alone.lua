#!lua flags=allow-oom
--[[
  Notes whether the owner of a claim has nothing else in hand. Only a claim whose owner had nothing else makes
  the point that it leaves behind suspect of having ended that owner.

  ARGV  layout, alone (bool), id (position)
  Reply 1 or 0 (the claim is lost: nothing was noted)
]]
-- keys meta claims leases
-- include shard
local id = ARGV[args.id]
if not redis.call('ZSCORE', CLAIMS, id) then
  return 0
end
if args.alone then
  redis.call('HSET', LEASES, id .. ':l', 1)
else
  redis.call('HDEL', LEASES, id .. ':l')
end
return 1
