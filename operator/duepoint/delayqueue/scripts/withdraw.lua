#!lua flags=allow-oom
--[[
  An occurrence is not wanted any more, wherever it is. One that a worker holds disappears under it:
  the attempt under way may end either way, its settlement meets nothing and stores no retry.

  KEYS  1 meta  2 heads  3 occ  4 occrec  5 lane  6 leases
  ARGV  layout, epoch, lane (number), id, member: positions in ARGV
  Reply APPLIED (it waited) | HELD (a worker has it) | UNCHANGED (there is none)
        | BUSY (on its way to another shard) | ABSENT (not in this draining shard: see the new one)
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta
-- include heads
-- include moves

local META, HEADS, OCC, OCCREC, LANE, LEASES = unpack(KEYS)
local refused = fenced_refusal(META)
if refused then
  return refused
end
local member = ARGV[args.member]
if shard_state == 'draining' and redis.call('HEXISTS', LEASES, mark_of(ARGV[args.id])) == 1 then
  return 'BUSY'
end
local score = redis.call('ZSCORE', LANE, member)
if not score then
  return shard_state == 'draining' and 'ABSENT' or 'UNCHANGED'
end
redis.call('ZREM', LANE, member)
redis.call('ZREM', OCC, member)
redis.call('HDEL', OCCREC, member)
refresh_head(HEADS, args.lane, LANE)
return tonumber(score) < CLAIMED and 'APPLIED' or 'HELD'
