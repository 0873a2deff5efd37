-- include shardcheck
-- `args` are ARGV[1], a MessagePack map of numbers and text; binary values follow, and the map has their positions, so
-- that runs of them go to native commands by unpack() without a loop.
local args = cmsgpack.unpack(ARGV[1])
local trouble = shard_trouble(META, args.layout, args.owner)
if trouble then
  return redis.error_reply(trouble)
end
