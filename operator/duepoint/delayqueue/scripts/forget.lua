#!lua flags=allow-oom
--[[
  A batch has arrived where it belongs: nothing of it is left here. Asked again it changes nothing.

  KEYS  1 meta  2 claims  3 leases  4 occ  5 occrec  6... buckets
  ARGV  layout, batch (position), schedules {{id, bucket key}}: id a position
  Reply schedules forgotten
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include moves

local META, CLAIMS, LEASES, OCC, OCCREC = unpack(KEYS, 1, 5)
local refused = refusal(META)
if refused then
  return refused
end
local batch = ARGV[args.batch]
local bucket_of, forgotten = {}, 0
for _, one in ipairs(args.schedules) do
  bucket_of[ARGV[one[1]]] = KEYS[one[2]]
end
for _, one in ipairs(read_move(redis.call('HGET', LEASES, batch))) do
  local id, record, triples = one[3], one[4], one[6]
  if record ~= '' then
    redis.call('HDEL', bucket_of[id], id)
    forgotten = forgotten + 1
  end
  for i = 1, #triples, 3 do
    redis.call('ZREM', OCC, triples[i])
    redis.call('HDEL', OCCREC, triples[i])
  end
  redis.call('HDEL', LEASES, mark_of(id))
end
redis.call('HDEL', LEASES, batch)
redis.call('ZREM', CLAIMS, batch)
return forgotten
