#!lua flags=allow-oom
--[[
  Remove members of a set that is being deleted from buckets of one shard, with their chains and occurrences: whole
  buckets in their order, until at least `most` members are gone. Other sets and namespaces in the same buckets are
  not touched. If a worker holds a point, the point goes all the same, and its settlement changes nothing.
  Without buckets, the shard removes the set itself. May be repeated.

  KEYS  then lane, and buckets
  ARGV  layout, epoch, lane, tally (its field in `meta`), most (members), batch (count of
        occurrences)
  Reply {members removed, buckets that hold no more members of the set}
        | {GONE}: the shard does not know the set | {OPEN}: the set is not being deleted; nothing was removed
  Error WRONGLAYOUT, FENCED
]]
-- keys meta heads occ occrec leases texts
-- include shard
-- include fenced
-- include heads
-- include occurrences
-- include definition
-- include moves

local LANE, FIRST_BUCKET = KEYS[7], 8
local entry = redis.call('HGET', META, args.lane)
if not entry then
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

-- Remove points by unlinking their lane, which the server frees in the background. In a draining shard remove them one by
-- one, because members that are just moving must stay.
local is_draining = shard_state == 'draining'
if not is_draining then
  redis.call('UNLINK', LANE)
end
local removed, emptied, has_occurrences = 0, 0, redis.call('ZCARD', OCC) > 1 -- one is the sentinel
for k = FIRST_BUCKET, #KEYS do
  local fields, ids, chains, are_moving = redis.call('HGETALL', KEYS[k]), {}, {}, false
  for f = 1, #fields, 2 do
    local id, record = fields[f], fields[f + 1]
    if is_ours(record) then
      if where_else(id, true) then
        are_moving = true
      else
        ids[#ids + 1], chains[#chains + 1] = id, id .. version_of(record)
        if has_occurrences then
          drop_all_occurrences(id)
        end
      end
    end
  end
  if #ids > 0 and 2 * #ids == #fields then
    redis.call('UNLINK', KEYS[k])
  end
  for first = 1, #ids, 4000 do -- unpack() carries 7,900 values
    local last = math.min(first + 3999, #ids)
    if 2 * #ids < #fields then
      redis.call('HDEL', KEYS[k], unpack(ids, first, last))
    end
    if is_draining then
      redis.call('ZREM', LANE, unpack(chains, first, last))
    end
  end
  removed = removed + #ids
  if are_moving then
    break
  end
  emptied = emptied + 1
  if removed >= args.most then
    break
  end
end
if removed > 0 then
  redis.call('HINCRBY', META, 'c' .. args.lane, -removed)
  refresh_head(args.lane, LANE)
end
return { removed, emptied }
