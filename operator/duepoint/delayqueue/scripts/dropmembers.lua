#!lua flags=allow-oom
--[[
  Members of a set are gone from one shard, with their chains, occurrences and history. A point that a worker holds disappears
  under it; its settlement meets nothing. A row may expect a fingerprint. No id twice.

  KEYS  then lane and buckets
  ARGV  layout, incarnation, lane (number), by_rows (for the rows of the set), rows {bucket, history (positions in KEYS), id (position), ...}; behind an id stand the
        member's name and the fingerprint that is expected ('': any)
  Reply {answer of each row}: '+' (removed) | '-' (nothing here, in a draining shard: see the new one)
        | '' (no member of that name stands there) | the fingerprint that stands there instead;
        or {BUSY}: a row is on its way to another shard | {GONE}: the shard does not know the set
        | {MANAGED}: its members follow rows, and by_rows is not set, or the other way round; nothing was removed
]]
-- keys meta heads occ occrec leases
-- include shard
-- include heads
-- include occurrences
-- include definition
-- include moves
-- include forgetting
-- include managed

-- Whether the record can be read, and has another name than this one.
local function has_other_name(record, name)
  local is_read, at, length = pcall(name_place, record)
  return is_read and string.sub(record, at, at + length - 1) ~= name
end

local LANE, BATCH, rows = KEYS[6], 500, args.rows
local entry = redis.call('HGET', META, 's' .. args.lane)
if not entry then
  return { 'GONE' }
elseif is_changed_by_others(entry, args.by_rows) then
  return { 'MANAGED' }
end
if shard_state == 'draining' then
  for i = 1, #rows, 3 do
    if where_else(ARGV[rows[i + 2]], true) then
      return { 'BUSY' }
    end
  end
end

local answers, removed = {}, 0
for i = 1, #rows, 3 do
  local bucket, at = KEYS[rows[i]], rows[i + 2]
  local id, name, expected = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local stored, answer = redis.call('HGET', bucket, id), '+'
  if not stored then
    answer = shard_state == 'draining' and '-' or ''
  elseif has_other_name(stored, name) then
    answer = ''
  elseif expected ~= '' and string.sub(stored, 8, 11) ~= expected then
    answer = string.sub(stored, 8, 11)
  else
    redis.call('HDEL', bucket, id)
    redis.call('ZREM', LANE, id .. version_of(stored))
    forget_history(KEYS[rows[i + 1]], { id })
    removed = removed + 1
    repeat
      local members = occurrences_of(id, BATCH)
      if #members > 0 then
        drop_occurrences(LANE, members)
      end
    until #members < BATCH
  end
  answers[#answers + 1] = answer
end
if removed > 0 then
  redis.call('HINCRBY', META, 'c' .. args.lane, -removed)
  refresh_head(args.lane, LANE)
end
return answers
