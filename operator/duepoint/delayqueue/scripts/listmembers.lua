#!lua flags=no-writes
--[[
  Read the records in some buckets of a set, whole buckets in their order, until there are `most`.

  KEYS  then buckets
  ARGV  layout, most (records), prefix (position): bytes that a record must contain
  Reply {number of buckets that were read, {{id, record, ...} of each of them}}
]]
-- keys meta
-- include shard
local found, listed, prefix = 0, {}, ARGV[args.prefix]
for i = 2, #KEYS do
  local fields, kept, n = redis.call('HGETALL', KEYS[i]), {}, 0
  if prefix == '' then
    kept, n = fields, #fields
  else
    for f = 2, #fields, 2 do
      if string.find(fields[f], prefix, 1, true) then
        kept[n + 1], kept[n + 2], n = fields[f - 1], fields[f], n + 2
      end
    end
  end
  listed[i - 1] = kept
  found = found + n / 2
  if found >= args.most then
    break
  end
end
return { #listed, listed }
