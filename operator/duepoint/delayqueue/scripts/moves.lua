#!lua flags=allow-oom
--[[
  The batches that are on their way from this shard, the oldest first, at most `most` of them.

  KEYS  1 meta  2 claims  3 leases
  ARGV  layout, most (count), batch (position; absent: all)
  Reply {{batch, {{lane, bucket key, id, record or '', due or '', {member, due, record, ...}}...}}
         ...}; the bucket keys are positions of former calls and mean nothing any more
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include moves

local META, CLAIMS, LEASES = KEYS[1], KEYS[2], KEYS[3]
local refused = refusal(META)
if refused then
  return refused
end
local reply = {}
for _, id in ipairs(redis.call('ZRANGE', CLAIMS, 0, -1)) do
  local is_asked_for = not args.batch or ARGV[args.batch] == id
  if #id == MOVE_LENGTH and is_asked_for and #reply < args.most then
    reply[#reply + 1] = { id, read_move(redis.call('HGET', LEASES, id)) }
  end
end
return reply
