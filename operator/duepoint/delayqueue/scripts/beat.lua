#!lua flags=allow-oom
--[[
  The worker counts as living for `ttl` from now; the dead ones are forgotten. Works on an index
  that does not exist yet, because that is one of the things it tells.

  KEYS  1 layout  2 workers
  ARGV  worker (text), ttl (us)
  Reply {server time us, incarnation or '', layout or 0, shards or 0, {worker ...}}
]]
-- include time

local LAYOUT, WORKERS = KEYS[1], KEYS[2]
local args = cmsgpack.unpack(ARGV[1])
local now = server_time()
redis.call('ZADD', WORKERS, now + args.ttl, args.worker)
redis.call('ZREMRANGEBYSCORE', WORKERS, '-inf', now)
local layout = redis.call('HMGET', LAYOUT, 'incarnation', 'layout', 'shards')
return { string.format('%.0f', now), layout[1] or '', tonumber(layout[2] or '0'),
  tonumber(layout[3] or '0'), redis.call('ZRANGE', WORKERS, 0, -1) }
