#!lua
--[[
  Store occurrences of a stored definition, due now, in the order given, unless they are in the queue already.
  Points, claims and the chain of the schedule are left alone. Called again (the reply was lost) it changes
  nothing, as long as the occurrences wait. Called as `withdraw` it removes one, also on a full server. If a worker holds
  it, it is removed all the same: the attempt in flight may end either way, and its settlement stores no retry.

  ARGV  layout, epoch, lane, id (position), withdrawn (position of a member; absent: none); to store some,
        at (us: the time by the caller's clock), uid (position),
        members {from, to} in ARGV, records {from, to}: the record of each member; for a set's member
        ledger {from, to}: perhaps the name and record of a ScheduleRun, whose slots these are,
        perhaps most {occurrences of the member, of the set, of the namespace in this shard}
  Reply {APPLIED | UNCHANGED (it is there) for each member} | GONE (no definition of this uid) | FULL (one of `most`
        is reached) | BUSY (moving to another shard) | ABSENT (not in this draining shard: see the new one)
        | to withdraw: APPLIED (it waited) | HELD (a worker held it) | UNCHANGED (there is none) | BUSY | ABSENT
  Error OOM
]]
-- keys meta heads occ occrec wake leases ledger lane bucket triggers
-- include shard
-- include fenced
-- include wake
-- include occurrences
-- include definition
-- include moves

local id = ARGV[args.id]
local stored = redis.call('HGET', BUCKET, id)
local elsewhere = where_else(id, stored)
if elsewhere then
  return elsewhere
end
if args.withdrawn then
  local member = ARGV[args.withdrawn]
  local score = redis.call('ZSCORE', LANE, member)
  if not score then
    return 'UNCHANGED'
  end
  drop_occurrences(LANE, { member })
  refresh_head(args.lane, LANE)
  return tonumber(score) < CLAIMED and 'APPLIED' or 'HELD'
end
if not stored or identity(stored) ~= ARGV[args.uid] then
  return 'GONE'
end

-- Each member of a set has at most one chain point; all other points are occurrences. TRIGGERS lists those of the
-- namespace. Nothing removes them when they end: each trigger checks the ones that were not checked for longest.
local LOOKED_AT, KEPT_SECONDS = 16, 604800
if args.most and not redis.call('ZSCORE', LANE, ARGV[args.members[1]]) then
  local members = tonumber(redis.call('HGET', META, 'c' .. args.lane)) or 0
  local looked = redis.call('ZRANGE', TRIGGERS, 0, LOOKED_AT - 1)
  for i, waits in ipairs(#looked > 0 and redis.call('ZMSCORE', OCC, unpack(looked)) or {}) do
    if waits then
      redis.call('ZADD', TRIGGERS, args.at, looked[i])
    else
      redis.call('ZREM', TRIGGERS, looked[i])
    end
  end
  if redis.call('ZLEXCOUNT', OCC, range_of(id)) >= args.most[1]
    or redis.call('ZCARD', LANE) - members >= args.most[2]
    or redis.call('ZCARD', TRIGGERS) >= args.most[3] then
    return 'FULL'
  end
  redis.call('ZADD', TRIGGERS, args.at, ARGV[args.members[1]])
  redis.call('EXPIRE', TRIGGERS, KEPT_SECONDS)
end

-- A microsecond apart, so that they are claimed in this order; the last one is due now. Now is the earlier of
-- two times: a server whose clock is an hour ahead would keep them waiting once its clock is right again.
local now, first, last = math.min(server_time(), args.at), args.members[1], args.members[2]
local reply, added, records = {}, {}, {}
for i = first, last do
  local member = ARGV[i]
  local is_added = redis.call('ZADD', LANE, 'NX', now - last + i, member) == 1
  reply[#reply + 1] = is_added and 'APPLIED' or 'UNCHANGED'
  if is_added then
    added[#added + 1], added[#added + 2] = 0, member
    records[#records + 1], records[#records + 2] = member, ARGV[args.records[1] + i - first]
  end
end
if args.ledger[1] <= args.ledger[2] then
  redis.call('HSET', LEDGER, ARGV[args.ledger[1]], ARGV[args.ledger[2]])
end
if #added > 0 then
  redis.call('ZADD', OCC, unpack(added))
  redis.call('HSET', OCCREC, unpack(records))
  announce_lane(args.lane, LANE)
end
return reply
