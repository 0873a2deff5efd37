#!lua
--[[
  Somebody wishes another number of shards; the leader sees the wish and fulfils it. Wishing again
  changes nothing.

  KEYS  1 layout
  ARGV  shards (a power of two)
  Reply {asked | done | moving | other, shards that are or will be}: `done` is what the index has,
        `moving` is being made already; `other` is refused, because it is being cut into another
        number
  Error UNINIT
]]
local LAYOUT = KEYS[1]
local args = cmsgpack.unpack(ARGV[1])
local known = redis.call('HMGET', LAYOUT, 'shards', 'former')
if not known[1] then
  return redis.error_reply('UNINIT there is no index yet')
end
local shards = tonumber(known[1])
if known[2] then
  return { args.shards == shards and 'moving' or 'other', shards }
end
if args.shards == shards then
  redis.call('HDEL', LAYOUT, 'wanted')
  return { 'done', shards }
end
redis.call('HSET', LAYOUT, 'wanted', args.shards)
return { 'asked', args.shards }
