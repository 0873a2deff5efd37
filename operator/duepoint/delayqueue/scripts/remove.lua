#!lua flags=allow-oom
--[[
  The definition of this uid is gone, with its chain and its history, and up to `batch` of its occurrences. A point that a
  worker holds disappears under it; its settlement meets nothing. Called again until nothing is left; another
  uid under the id is left alone.

  ARGV  layout, epoch, lane (number), batch (count), id, uid (as packed in the record): positions
  Reply {APPLIED | UNCHANGED | BUSY (on its way to another shard), occurrences that may be left
         (0 or 1), whether it may be in a new shard, too (0 or 1)}
]]
-- keys meta heads occ occrec leases lane bucket history
-- include shard
-- include fenced
-- include heads
-- include occurrences
-- include definition
-- include moves
-- include forgetting

local id = ARGV[args.id]
local stored = redis.call('HGET', BUCKET, id)
local may_be_elsewhere = shard_state == 'draining' and 1 or 0
if where_else(id, true) then
  return { 'BUSY', 0, may_be_elsewhere }
end
if stored then
  if is_readable(stored) and identity(stored) ~= ARGV[args.uid] then
    return { 'UNCHANGED', 0, may_be_elsewhere }
  end
  redis.call('HDEL', BUCKET, id)
  redis.call('ZREM', LANE, id .. version_of(stored))
  forget_history(HISTORY, { id })
end
local members = occurrences_of(id, args.batch)
if #members > 0 then
  drop_occurrences(LANE, members)
end
refresh_head(args.lane, LANE)
local applied = (stored or #members > 0) and 'APPLIED' or 'UNCHANGED'
return { applied, #members == args.batch and 1 or 0, may_be_elsewhere }
