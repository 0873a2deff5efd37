#!lua flags=allow-oom
--[[
  Remove an occurrence. If a worker holds it, it goes all the same: the attempt in flight may end either way, and
  its settlement changes nothing and stores no retry.

  ARGV  layout, epoch, lane, id, member: positions in ARGV
  Reply APPLIED (it waited) | HELD (a worker held it) | UNCHANGED (there is none)
        | BUSY (moving to another shard) | ABSENT (not in this draining shard: see the new one)
]]
-- keys meta heads occ occrec leases lane
-- include shard
-- include fenced
-- include heads
-- include occurrences
-- include moves

local member = ARGV[args.member]
local score = redis.call('ZSCORE', LANE, member)
local elsewhere = where_else(ARGV[args.id], score)
if elsewhere or not score then
  return elsewhere or 'UNCHANGED'
end
drop_occurrences(LANE, { member })
refresh_head(args.lane, LANE)
return tonumber(score) < CLAIMED and 'APPLIED' or 'HELD'
