#!lua flags=allow-oom
--[[
  A batch has arrived where it belongs: nothing of it is left here. Called again it changes nothing.

  KEYS  then buckets
  ARGV  layout, epoch, batch (text), buckets {{key, from, to}}: ids in ARGV
  Reply OK
]]
-- keys meta leases occ occrec
-- include shard
-- include fenced
-- include occurrences
-- include moves

local batch, taken = cmsgpack.unpack(redis.call('HGET', LEASES, BATCH) or cmsgpack.pack(''))
if batch ~= args.batch then
  return 'OK'
end
for _, bucket in ipairs(args.buckets) do
  redis.call('HDEL', KEYS[bucket[1]], unpack(ARGV, bucket[2], bucket[3]))
end
for _, schedule in ipairs(taken) do
  local lane, id, points = schedule[1], schedule[2], schedule[5]
  if redis.call('HEXISTS', META, 's' .. lane) == 1 then
    redis.call('HINCRBY', META, 'c' .. lane, -1)
  end
  for i = 1, #points, 2 do
    forget_occurrences({ points[i] })
  end
  redis.call('HDEL', LEASES, mark_of(id))
end
redis.call('HDEL', LEASES, BATCH)
return 'OK'
