#!lua flags=allow-oom
--[[
  A batch has arrived where it belongs: nothing of it is left here. Called again it changes nothing.

  KEYS  then buckets
  ARGV  layout, batch (position), schedules {{id, bucket key, history key, history key of members}}: id a
        position
  Reply schedules forgotten
]]
-- keys meta claims leases occ occrec
-- include shard
-- include occurrences
-- include moves
-- include takenbatch
-- include forgetting

local batch = ARGV[args.batch]
local bucket_of, histories_of, forgotten = {}, {}, 0
for _, schedule in ipairs(args.schedules) do
  bucket_of[ARGV[schedule[1]]] = KEYS[schedule[2]]
  histories_of[ARGV[schedule[1]]] = { KEYS[schedule[3]], KEYS[schedule[4]] }
end
for _, schedule in ipairs(read_batch(redis.call('HGET', LEASES, batch))) do
  local id, record, triples = schedule[3], schedule[4], schedule[6]
  if record ~= '' then
    local gone = redis.call('HDEL', bucket_of[id], id)
    forgotten = forgotten + 1
    for _, history in ipairs(histories_of[id]) do
      forget_history(history, { id })
    end
    if gone == 1 and redis.call('HEXISTS', META, 'c' .. schedule[1]) == 1 then
      redis.call('HINCRBY', META, 'c' .. schedule[1], -1) -- a member of a set
    end
  end
  for i = 1, #triples, 3 do
    forget_occurrences({ triples[i] })
  end
  redis.call('HDEL', LEASES, mark_of(id))
end
redis.call('HDEL', LEASES, batch)
redis.call('ZREM', CLAIMS, batch)
return forgotten
