#!lua flags=allow-oom
--[[
  Remove members of a set that is being deleted from buckets of one shard, with their chains and occurrences: whole
  buckets in their order, until at least `most` members are gone. Other sets and namespaces in the same buckets are
  not touched. If a worker holds a point, it is removed all the same, and its settlement changes nothing.
  Without buckets, the shard removes the set itself. May be repeated.

  KEYS  then lane, and buckets
  ARGV  layout, epoch, lane, tally (its field in `meta`), most (members), batch (count of
        occurrences)
  Reply {members removed, buckets that hold no more members of the set}
        | {GONE}: the shard does not know the set, or its members move to other shards first | {OPEN}: the set is not being
          deleted; nothing was removed
  Error WRONGLAYOUT, FENCED
]]
-- keys meta heads occ occrec texts
-- include shard
-- include fenced
-- include heads
-- include occurrences
-- include definition

local LANE, FIRST_BUCKET = KEYS[6], 7
local entry = redis.call('HGET', META, args.lane)
if not entry or shard_state == 'draining' then
  return { 'GONE' }
elseif string.sub(entry, 1, 1) ~= 'd' then
  return { 'OPEN' }
end
if #KEYS < FIRST_BUCKET then
  redis.call('UNLINK', LANE)
  redis.call('ZREM', HEADS, args.lane)
  redis.call('HDEL', META, args.lane, 'c' .. args.lane, args.tally)
  return { 0, 0 }
end

-- Whether a record belongs to the set; false or nil for an unreadable one.
local of_kind, beginning = {}, args.lane .. '\n'

local function is_ours(record)
  local kind = string.byte(record, 1) == FORMAT and string.sub(record, KIND, GENERATION - 1)
  if kind and of_kind[kind] == nil then
    local text = redis.call('HGET', TEXTS, kind) or ''
    of_kind[kind] = string.sub(text, 1, #beginning) == beginning
  end
  return kind and of_kind[kind]
end

local function drop_all_occurrences(id)
  repeat
    local members = occurrences_of(id, args.batch)
    if #members > 0 then
      drop_occurrences(LANE, members)
    end
  until #members < args.batch
end

redis.call('UNLINK', LANE) -- the server frees the points in the background
local removed, emptied, has_occurrences = 0, 0, redis.call('ZCARD', OCC) > 1 -- one is the sentinel
for k = FIRST_BUCKET, #KEYS do
  local fields, ids = redis.call('HGETALL', KEYS[k]), {}
  for f = 1, #fields, 2 do
    if is_ours(fields[f + 1]) then
      ids[#ids + 1] = fields[f]
      if has_occurrences then
        drop_all_occurrences(fields[f])
      end
    end
  end
  if 2 * #ids == #fields then
    redis.call('UNLINK', KEYS[k])
  else
    for first = 1, #ids, 4000 do -- unpack() carries 7,900 values
      redis.call('HDEL', KEYS[k], unpack(ids, first, math.min(first + 3999, #ids)))
    end
  end
  removed, emptied = removed + #ids, emptied + 1
  if removed >= args.most then
    break
  end
end
if removed > 0 then
  redis.call('HINCRBY', META, 'c' .. args.lane, -removed)
  refresh_head(args.lane, LANE)
end
return { removed, emptied }
