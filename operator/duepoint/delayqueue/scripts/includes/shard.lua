-- include shardcheck
-- `args` is ARGV[1], a MessagePack map of numbers and text; binary values follow in ARGV, and the map has their positions,
-- so that unpack() passes ranges of them to native commands without a loop.
local args = cmsgpack.unpack(ARGV[1])
local trouble = shard_trouble(META, args.layout, args.owner)
if trouble then
  return redis.error_reply(trouble)
end
