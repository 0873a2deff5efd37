#!lua flags=allow-oom
--[[
  The batches that are on their way from this shard, the oldest first, at most `most` of them.

  ARGV  layout, most (count), batch (position; absent: all)
  Reply {{batch, {taken schedule (takenbatch.lua) ...}} ...}
]]
-- keys meta claims leases
-- include shard
-- include members
-- include takenbatch

local reply = {}
for _, id in ipairs(redis.call('ZRANGE', CLAIMS, 0, -1)) do
  local is_wanted = not args.batch or ARGV[args.batch] == id
  if #id == MOVE_LENGTH and is_wanted and #reply < args.most then
    reply[#reply + 1] = { id, read_batch(redis.call('HGET', LEASES, id)) }
  end
end
return reply
