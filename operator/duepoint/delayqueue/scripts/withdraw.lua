#!lua flags=allow-oom
--[[
  An occurrence is not wanted any more, wherever it is. One that a worker holds disappears under it: the attempt
  under way may end either way, its settlement meets nothing and stores no retry.

  KEYS  1 meta  2 heads  3 occ  4 occrec  5 lane  6 leases
  ARGV  layout, epoch, lane (number), id, member: positions in ARGV
  Reply APPLIED (it waited) | HELD (a worker has it) | UNCHANGED (there is none)
        | BUSY (on its way to another shard) | ABSENT (not in this draining shard: see the new one)
]]
local META, HEADS, OCC, OCCREC, LANE, LEASES = unpack(KEYS)
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
