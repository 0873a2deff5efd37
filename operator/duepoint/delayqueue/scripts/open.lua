#!lua
--[[
  The layout record exists; the first caller's wish is what it says.

  KEYS  1 layout
  ARGV  layout, shards, buckets, epoch, incarnation (text)
  Reply {layout, shards, buckets, incarnation}
  Error FENCED, OOM
]]
local LAYOUT = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local newest = tonumber(redis.call('HGET', LAYOUT, 'epoch') or '0')
if args.epoch < newest then
  return redis.error_reply('FENCED term ' .. args.epoch .. ' is older than ' .. newest)
end
if redis.call('EXISTS', LAYOUT) == 0 then
  redis.call('HSET', LAYOUT, 'layout', args.layout, 'shards', args.shards, 'buckets', args.buckets,
    'state', 'stable', 'incarnation', args.incarnation)
end
redis.call('HSET', LAYOUT, 'epoch', args.epoch)
return redis.call('HMGET', LAYOUT, 'layout', 'shards', 'buckets', 'incarnation')
