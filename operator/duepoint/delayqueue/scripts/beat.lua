#!lua flags=allow-oom
--[[
  Count the worker as alive for `ttl` from now, and remove dead ones. Works on an index that does not
  exist yet, because the reply reports that.

  ARGV  worker (text), ttl (us), trouble (text, or '')
  Reply {server time us, incarnation or '', layout or 0, shards or 0, {worker ...}, former or 0,
         former shards or 0}
]]
-- keys layout workers troubles
-- include layout
-- include time
local now = server_time()
-- A worker that beat while this server's clock was ahead, and died, would count as alive for too long: cap it as if it beat now.
for _, worker in ipairs(redis.call('ZRANGE', WORKERS, '(' .. digits(now + args.ttl), '+inf', 'BYSCORE', 'LIMIT', 0, 1000)) do
  redis.call('ZADD', WORKERS, now + args.ttl, worker)
end
redis.call('ZADD', WORKERS, now + args.ttl, args.worker)
if args.trouble ~= '' then
  redis.call('HSET', TROUBLES, args.worker, args.trouble)
else
  redis.call('HDEL', TROUBLES, args.worker)
end
local dead = redis.call('ZRANGE', WORKERS, '-inf', now, 'BYSCORE', 'LIMIT', 0, 1000)
if #dead > 0 then
  redis.call('ZREM', WORKERS, unpack(dead))
  redis.call('HDEL', TROUBLES, unpack(dead))
end
local number, shards, _, incarnation, former, former_shards = unpack(layout_record())
return { digits(now), incarnation or '', tonumber(number) or 0, tonumber(shards) or 0,
  redis.call('ZRANGE', WORKERS, 0, -1), tonumber(former) or 0, tonumber(former_shards) or 0 }
