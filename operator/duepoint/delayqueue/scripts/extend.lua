#!lua flags=allow-oom
--[[
  Extend the claim's lease to `lease` from now, if that is later than before; calling twice is harmless. A lease
  that ends later than any valid one was written before the server's clock was put back, and is shortened.

  KEYS  then the lanes of the claim
  ARGV  layout, lease (us), latest (us after now that no lease can end), id (position), point (position; absent: none): member
        and due of the claim's one point, which the owner is about to try with nothing else in hand. The owner is counted as
        lost to it until it takes that back, or until a settlement gives the point another due
  Reply {'lost'} | {'extended', token us, server time us}
]]
-- keys meta claims crashes
-- include shard
-- include rescoring
-- include callersclaim

local KEPT_SECONDS = 86400 -- of the counts of lost owners
local now = server_time()
if not token then
  return { 'lost' }
end
if now + args.lease > token or token > now + args.latest then
  token = change_lease(id, token, now + args.lease, { unpack(KEYS, 4) })
end
if args.point then
  redis.call('HINCRBY', CRASHES, ARGV[args.point], 1)
  redis.call('EXPIRE', CRASHES, KEPT_SECONDS)
end
return { 'extended', digits(token), digits(now) }
