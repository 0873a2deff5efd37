#!lua flags=allow-oom
--[[
  Make an empty shard. No other script creates `meta`, so an emptied server is never mistaken for one that merely
  has no schedules. Run again it changes nothing but a lower epoch. A `meta` without its fields is made anew;
  the other keys of the shard stay. Runs on a full server: a new leader must be able to delete. The mark begins
  above that of any shard that was here before.

  ARGV  layout, made_as (text: the incarnation), epoch, format, state (open or draining; an existing shard keeps its
        own); or, to change the state of an existing shard, layout, epoch, becomes (open; draining: it takes no new
        schedules, and the ones it has can be edited, deleted, claimed and settled until they have left; closed: it stays
        empty, and later callers must read the layout again), hold (us: nothing more is claimed for that long, so that
        schedules that some worker always holds come to rest and can leave)
  Reply {made (0 or 1), incarnation}
  Error WRONGLAYOUT: the shard is closed | UNINIT: it does not exist, and its state was to change
]]
-- keys meta heads claims leases occ occrec blobs texts runs ledger ended
-- include time
local made = redis.call('HMGET', META, 'layout', 'incarnation')
local wanted = cmsgpack.unpack(ARGV[1])
if wanted.made_as and (not tonumber(made[1]) or not made[2]) then
  redis.call('HSET', META, 'layout', wanted.layout, 'state', wanted.state or 'open', 'incarnation', wanted.made_as,
    'epoch', wanted.epoch, 'format', wanted.format, 'mark', digits(server_time()))
  if wanted.owner then
    redis.call('HSET', META, 'owner', wanted.owner)
  end
  -- Sentinels keep the keys alive: a missing key would be answered with TRYAGAIN while its slot migrates.
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
if args.becomes then
  redis.call('HSET', META, 'state', args.becomes, 'hold', digits(args.hold > 0 and server_time() + args.hold or 0))
end
return { 0, meta[3] }
