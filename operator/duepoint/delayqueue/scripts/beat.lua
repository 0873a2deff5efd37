#!lua flags=allow-oom
--[[
  Count the worker as alive for `ttl` from now, and remove dead ones. Runs on a full server, and if there is no index yet.

  ARGV  worker (text), ttl (us), trouble (text, or ''), fields {field, ...} of the layout record
  Reply {server time us, {value of the field, ...}, {worker, ...}}
  Error FOREIGN
]]
-- keys layout workers troubles
-- include time
-- include owner
local now = server_time()
local last = digits(now + args.ttl)
-- A worker that beat while this server's clock was ahead, and died, would count as alive for too long: cap it as if it beat now.
for _, worker in ipairs(redis.call('ZRANGE', WORKERS, '(' .. last, '+inf', 'BYSCORE', 'LIMIT', 0, 1000)) do
  redis.call('ZADD', WORKERS, last, worker)
end
redis.call('ZADD', WORKERS, last, args.worker)
if args.trouble ~= '' then
  redis.call('HSET', TROUBLES, args.worker, args.trouble)
else
  redis.call('HDEL', TROUBLES, args.worker)
end
local dead = redis.call('ZRANGE', WORKERS, '-inf', digits(now), 'BYSCORE', 'LIMIT', 0, 1000)
if #dead > 0 then
  redis.call('ZREM', WORKERS, unpack(dead))
  redis.call('HDEL', TROUBLES, unpack(dead))
end
return { digits(now), redis.call('HMGET', LAYOUT, unpack(args.fields)), redis.call('ZRANGE', WORKERS, 0, -1) }
