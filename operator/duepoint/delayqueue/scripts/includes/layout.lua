-- The layout record: the layout of the index and, while it is resharded, the former one. FOREIGN if it belongs to
-- another cluster than `owner`.
local args = cmsgpack.unpack(ARGV[1])
local owner = redis.call('HGET', LAYOUT, 'owner')
if args.owner and owner and args.owner ~= owner then
  return redis.error_reply('FOREIGN the index is of ' .. owner .. ', not of ' .. args.owner)
end

local function layout_record()
  return redis.call('HMGET', LAYOUT, 'layout', 'shards', 'buckets', 'incarnation', 'former', 'former_shards')
end
