#!lua flags=allow-oom
--[[
  An occurrence is not wanted any more, wherever it is. One that a worker holds disappears under it: the attempt
  under way may end either way, its settlement meets nothing and stores no retry.

  ARGV  layout, epoch, lane, id, member: positions in ARGV
  Reply APPLIED (it waited) | HELD (a worker has it) | UNCHANGED (there is none)
        | BUSY (on its way to another shard) | ABSENT (not in this draining shard: see the new one)
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
