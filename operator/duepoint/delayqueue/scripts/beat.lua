#!lua flags=allow-oom
--[[
  The worker counts as living for `ttl` from now; the dead ones are forgotten. Works on an index
  that does not exist yet, because that is one of the things it tells.

  KEYS  1 layout  2 workers  3 seen
  ARGV  worker (text), ttl (us), knows (number of the layout that it works with)
  Reply {server time us, incarnation or '', layout or 0, shards or 0, {worker ...}, former or 0,
         former shards or 0}
  Error FOREIGN (the index is of another cluster)
]]
-- include time

local LAYOUT, WORKERS, SEEN = KEYS[1], KEYS[2], KEYS[3]
local args = cmsgpack.unpack(ARGV[1])
local now = server_time()
local owner = redis.call('HGET', LAYOUT, 'owner')
if args.owner and owner and args.owner ~= owner then
  return redis.error_reply('FOREIGN the index is of ' .. owner .. ', not of ' .. args.owner)
end
redis.call('ZADD', WORKERS, now + args.ttl, args.worker)
redis.call('HSET', SEEN, args.worker, args.knows)
local dead = redis.call('ZRANGE', WORKERS, '-inf', now, 'BYSCORE', 'LIMIT', 0, 1000)
if #dead > 0 then
  redis.call('ZREM', WORKERS, unpack(dead))
  redis.call('HDEL', SEEN, unpack(dead))
end
local layout = redis.call('HMGET', LAYOUT, 'incarnation', 'layout', 'shards', 'former',
  'former_shards')
return { string.format('%.0f', now), layout[1] or '', tonumber(layout[2]) or 0,
  tonumber(layout[3]) or 0, redis.call('ZRANGE', WORKERS, 0, -1), tonumber(layout[4]) or 0,
  tonumber(layout[5]) or 0 }
