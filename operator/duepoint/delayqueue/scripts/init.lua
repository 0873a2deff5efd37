#!lua flags=allow-oom
--[[
  Makes an empty shard. Nothing else creates `meta`, so an emptied server is never mistaken for one that merely
  holds no schedules. Run again it changes nothing but a lower epoch. A `meta` that says nothing is made anew;
  what else the shard holds stays. Runs on a full server: a new leader has to be able to delete. Its mark begins
  above that of any shard that was here before.

  ARGV  layout, made_as (text: the incarnation), epoch, format, state (open or draining; of a shard that exists it
        stays as it is)
  Reply {made (0 or 1), incarnation}
]]
-- keys meta heads claims leases occ occrec blobs texts runs ledger ended
-- include time
local made = redis.call('HMGET', META, 'layout', 'incarnation')
if not tonumber(made[1]) or not made[2] then
  local wanted = cmsgpack.unpack(ARGV[1])
  redis.call('HSET', META, 'layout', wanted.layout, 'state', wanted.state or 'open', 'incarnation', wanted.made_as,
    'epoch', wanted.epoch, 'format', wanted.format, 'mark', digits(server_time()))
  if wanted.owner then
    redis.call('HSET', META, 'owner', wanted.owner)
  end
  -- Sentinels: a key that exists is never answered with TRYAGAIN while its slot moves.
  for _, sorted_set in ipairs({ HEADS, CLAIMS, ENDED }) do
    redis.call('ZADD', sorted_set, '+inf', '')
  end
  redis.call('ZADD', OCC, 0, '')
  for _, hash in ipairs({ LEASES, OCCREC, BLOBS, TEXTS, LEDGER }) do
    redis.call('HSET', hash, '', '')
  end
  if redis.call('EXISTS', RUNS) == 0 then
    redis.call('XDEL', RUNS, redis.call('XADD', RUNS, '0-1', '', ''))
  end
  return { 1, wanted.made_as }
end
-- include shard
-- include fenced
if args.owner then
  redis.call('HSETNX', META, 'owner', args.owner)
end
return { 0, meta[3] }
