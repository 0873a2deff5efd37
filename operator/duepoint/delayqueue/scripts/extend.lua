#!lua flags=allow-oom
--[[
  The claim's lease ends `lease` from now, if that is later than before; calling twice is harmless. One that
  ends later than any can was written before the server's clock was put back, and is put back, too.

  KEYS  then the lanes of the claim
  ARGV  layout, lease (us), latest (us after now that no lease can end), id (position)
  Reply {'lost'} | {'extended', token us, server time us}
]]
-- keys meta claims leases
-- include shard
-- include rescoring
-- include callersclaim

local now = server_time()
if not token then
  return { 'lost' }
end
if now + args.lease > token or token > now + args.latest then
  token = change_lease(id, token, now + args.lease, { unpack(KEYS, 4) })
end
local length = redis.call('HGET', LEASES, id .. ':e')
if length and tonumber(length) < args.lease then
  redis.call('HSET', LEASES, id .. ':e', digits(args.lease))
end
return { 'extended', digits(token), digits(now) }
