#!lua flags=allow-oom
--[[
  The definition of this uid is gone, with its chain, and up to `batch` of its occurrences. A
  point that a worker holds disappears under it; its settlement meets nothing. Called again until
  nothing is left; another uid under the id is left alone.

  KEYS  1 meta  2 heads  3 occ  4 occrec  5 lane  6 bucket  7 leases
  ARGV  layout, epoch, lane (number), batch (count), id, uid (as packed in the record): positions
  Reply {APPLIED | UNCHANGED | BUSY (on its way to another shard), occurrences that may be left
         (0 or 1), whether it may be in a new shard, too (0 or 1)}
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta
-- include heads
-- include definition
-- include moves

local META, HEADS, OCC, OCCREC, LANE, BUCKET, LEASES = unpack(KEYS)
local refused = fenced_refusal(META)
if refused then
  return refused
end
local id = ARGV[args.id]
local stored = redis.call('HGET', BUCKET, id)
local elsewhere = shard_state == 'draining' and 1 or 0
if elsewhere == 1 and redis.call('HEXISTS', LEASES, mark_of(id)) == 1 then
  return { 'BUSY', 0, elsewhere }
end
if stored then
  if is_readable(stored) and identity(stored) ~= ARGV[args.uid] then
    return { 'UNCHANGED', 0, elsewhere }
  end
  redis.call('HDEL', BUCKET, id)
  redis.call('ZREM', LANE, id .. version_of(stored))
end
local last = id .. string.rep('\255', 18)
local members = redis.call('ZRANGE', OCC, '[' .. id, '[' .. last, 'BYLEX', 'LIMIT', 0, args.batch)
if #members > 0 then
  redis.call('ZREM', LANE, unpack(members))
  redis.call('ZREM', OCC, unpack(members))
  redis.call('HDEL', OCCREC, unpack(members))
end
refresh_head(HEADS, args.lane, LANE)
local applied = (stored or #members > 0) and 'APPLIED' or 'UNCHANGED'
return { applied, #members == args.batch and 1 or 0, elsewhere }
