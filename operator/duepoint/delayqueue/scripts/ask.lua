#!lua
--[[
  A user wishes another number of shards; the leader sees the wish and fulfils it. Called again it changes
  nothing.

  ARGV  shards (a power of two)
  Reply {asked | done | moving | other, shards that are or will be}: `done` is what the index has,
        `moving` is being made already; `other` is refused, because it is being cut into another
        number
  Error OOM
]]
-- keys layout
-- include layout
-- include index
local _, shards, _, _, former = unpack(layout_record())
shards = tonumber(shards)
if former then
  return { args.shards == shards and 'moving' or 'other', shards }
end
if args.shards == shards then
  redis.call('HDEL', LAYOUT, 'wanted')
  return { 'done', shards }
end
redis.call('HSET', LAYOUT, 'wanted', args.shards)
return { 'asked', args.shards }
