#!lua flags=allow-oom
--[[
  The last slots of those schedules among `ids` whose definition is not in its bucket are gone; the others keep theirs.
  May be repeated.

  ARGV  layout, first, last (positions of the ids)
  Reply schedules whose last slots are gone
]]
-- keys meta bucket history
-- include shard
-- include forgetting

local ids, gone = { unpack(ARGV, args.first, args.last) }, {}
for i, record in ipairs(redis.call('HMGET', BUCKET, unpack(ids))) do
  if not record then
    gone[#gone + 1] = ids[i]
  end
end
forget_history(HISTORY, gone)
return #gone
