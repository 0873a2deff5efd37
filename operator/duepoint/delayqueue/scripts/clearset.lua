#!lua flags=allow-oom
--[[
  Members of a set are removed from one shard, a bounded number of them: no point of the set is left, and the records
  of about `most` of its members are gone from the buckets, which are looked at in their order. The set's entry says
  that its members are being removed, so that none is added. With `last` the shard forgets the set. Called again it
  goes on with what is left.

  KEYS  then lane and buckets
  ARGV  layout, epoch, lane (number), most (members), last (bool), text (position): of the set, as it is interned
  Reply {removed, number of buckets that hold none of them any more}
]]
-- keys meta heads occ occrec interned
-- include shard
-- include fenced
-- include heads
-- include occurrences
-- include definition

local LANE, FIRST_BUCKET, BATCH = KEYS[6], 7, 500
local VARINTS_BEFORE_LANE = 5 -- generation, timing generation, collision, created, not before
local number, field = tonumber(args.lane), 's' .. args.lane
local entry = redis.call('HGET', META, field)
if entry and string.sub(entry, 1, 1) ~= 'd' then
  redis.call('HSET', META, field, 'd' .. string.sub(entry, 2))
end
redis.call('UNLINK', LANE)
redis.call('ZREM', HEADS, args.lane)

local function lane_of(record)
  local found, at = 0, GENERATION
  for _ = 1, VARINTS_BEFORE_LANE + 1 do
    found, at = varint(record, at)
  end
  return found
end

local function is_ours(record)
  local is_read, lane = pcall(lane_of, record)
  return is_read and lane == number
end

local removed, passed = 0, 0
for k = FIRST_BUCKET, #KEYS do
  local fields, ids = redis.call('HGETALL', KEYS[k]), {}
  for f = 1, #fields, 2 do
    if is_ours(fields[f + 1]) then
      ids[#ids + 1] = fields[f]
    end
  end
  for _, id in ipairs(ids) do
    repeat
      local members = occurrences_of(id, BATCH)
      if #members > 0 then
        forget_occurrences(members)
      end
    until #members < BATCH
  end
  if #ids > 0 and #ids == #fields / 2 then
    redis.call('UNLINK', KEYS[k])
  else
    for first = 1, #ids, BATCH do
      redis.call('HDEL', KEYS[k], unpack(ids, first, math.min(first + BATCH - 1, #ids)))
    end
  end
  removed, passed = removed + #ids, passed + 1
  if removed >= args.most then
    break
  end
end
if removed > 0 and entry then
  redis.call('HINCRBY', META, 'c' .. args.lane, -removed)
end
if args.last and passed == #KEYS - FIRST_BUCKET + 1 then
  redis.call('HDEL', META, field, 'c' .. args.lane)
  redis.call('HDEL', INTERNED, 'n:' .. args.lane, 't:' .. ARGV[args.text])
end
return { removed, passed }
