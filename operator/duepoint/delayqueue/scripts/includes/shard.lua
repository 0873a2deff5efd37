-- The shard is the one that the caller knows, or nothing happens: UNINIT (no meta, or one that says nothing: emptied,
-- or never made), WRONGLAYOUT (another layout, closed, or made anew as another than `incarnation`), FOREIGN (of
-- another cluster than `owner`). `args` are ARGV[1], a MessagePack map of numbers and text; binary values follow, and
-- the map has their positions, so that runs of them go to native commands by unpack() without a loop.
local args = cmsgpack.unpack(ARGV[1])
local meta = redis.call('HMGET', META, 'layout', 'state', 'incarnation', 'server', 'mark', 'back', 'owner')
if not tonumber(meta[1]) or not meta[3] then
  return redis.error_reply('UNINIT this shard holds no index')
end
if args.owner and meta[7] and args.owner ~= meta[7] then
  return redis.error_reply('FOREIGN the shard is of ' .. meta[7] .. ', not of ' .. args.owner)
end
if tonumber(meta[1]) ~= args.layout or meta[2] == 'closed' then
  return redis.error_reply('WRONGLAYOUT the shard is of layout ' .. meta[1] .. ', ' .. meta[2])
end
if args.incarnation and args.incarnation ~= meta[3] then
  return redis.error_reply('WRONGLAYOUT the index was made anew as ' .. meta[3])
end
-- open; filling: the move to a new layout brings schedules here; draining: it takes them from here
local shard_state = meta[2]
