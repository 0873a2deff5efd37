#!lua flags=allow-oom
--[[
  Return whether the shard is in doubt. Like a claim, this detects a server that has rolled back, because data that is
  missing may be missing for that reason alone. Or end the doubt, after the leader has checked every point of a Schedule
  that is due by `back`; unless more of them were found since.

  KEYS  then, to end it, lanes
  ARGV  layout, cap (us), former, moved, ran (channel): as in claim.lua; the last value is the run id of the server that this
        is sent to; or, to end it, epoch, ended (text: the doubt that the leader knows), lanes (in the order of KEYS)
  Reply {back (us), doubt (text; '': there is none)} | {'other', run id}: as in claim.lua
]]
-- keys meta runs heads wake
-- include shard
-- include fenced
-- include time
-- include doubt
-- include wake

if not args.ended then
  return look_at_server(ARGV[#ARGV], server_time()) or { meta[6] or '0', meta[8] or '' }
end
if meta[8] == args.ended then
  redis.call('HDEL', META, 'doubt')
  meta[8] = false
  for i, lane in ipairs(args.lanes) do
    announce_lane(lane, KEYS[4 + i])
  end
end
return { meta[6] or '0', meta[8] or '' }
