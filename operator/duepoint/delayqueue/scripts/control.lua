#!lua flags=allow-oom
--[[
  Change the layout record if it is as the caller has read it, and perhaps the record of a set. Runs on a full server: a
  new leader must be able to delete.

  ARGV  epoch (absent: not by a leader), expected {field, value, ...} ('': no such field), fields {field, value, ...},
        gone {field, ...}, seen (bool: set the field `seen` to now), makes (bool: there may be no index yet),
        place, record (positions; absent: no set; an empty record removes the set's)
  Reply {1, or 0: the record differed and nothing changed,
         layout, shards, buckets, incarnation, former, former_shards}
  Error UNINIT, FENCED, FOREIGN
]]
-- keys layout sets
-- include time
-- include owner
if not args.makes and redis.call('HEXISTS', LAYOUT, 'layout') == 0 then
  return redis.error_reply('UNINIT the index does not exist')
end
-- include fenced

local function reply(is_changed)
  return { is_changed, unpack(redis.call('HMGET', LAYOUT, 'layout', 'shards', 'buckets', 'incarnation', 'former',
    'former_shards'), 1, 6) }
end

for i = 1, #args.expected, 2 do
  if (redis.call('HGET', LAYOUT, args.expected[i]) or '') ~= args.expected[i + 1] then
    return reply(0)
  end
end
if #args.fields > 0 then
  redis.call('HSET', LAYOUT, unpack(args.fields))
end
if #args.gone > 0 then
  redis.call('HDEL', LAYOUT, unpack(args.gone))
end
if args.seen then
  redis.call('HSET', LAYOUT, 'seen', digits(server_time()))
end
if args.makes and args.owner then
  redis.call('HSET', LAYOUT, 'owner', args.owner)
end
if args.place then
  if ARGV[args.record] == '' then
    redis.call('HDEL', SETS, ARGV[args.place])
  else
    redis.call('HSET', SETS, ARGV[args.place], ARGV[args.record])
  end
end
return reply(1)
