#!lua flags=allow-oom
--[[
  The shard is in doubt no longer: the leader has looked at every point of a Schedule that is due by `back`. Unless more of
  them were found since.

  KEYS  then lanes
  ARGV  layout, epoch, doubt (text: that which the leader knows), lanes (numbers, in the order of KEYS)
  Reply 1 | 0 (more were found)
]]
-- keys meta heads wake
-- include shard
-- include fenced
-- include time
-- include wake

if meta[8] ~= args.doubt then
  return 0
end
local before = shard_head()
redis.call('HDEL', META, 'doubt')
meta[8] = false
for i, lane in ipairs(args.lanes) do
  refresh_head(lane, KEYS[3 + i])
end
announce_head(before, server_time())
return 1
