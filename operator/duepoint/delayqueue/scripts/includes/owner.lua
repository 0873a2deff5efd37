-- The arguments of a script about the whole index. FOREIGN if it belongs to another cluster than `owner`.
local args = cmsgpack.unpack(ARGV[1])
local owner = redis.call('HGET', LAYOUT, 'owner')
if args.owner and owner and args.owner ~= owner then
  return redis.error_reply('FOREIGN the index is of ' .. owner .. ', not of ' .. args.owner)
end
