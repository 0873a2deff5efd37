#!lua flags=allow-oom
--[[
  Whether the shard is suspect. A server that went back is found out here as by a claim, because what is not in
  its state may be missing for that reason alone.

  KEYS
  ARGV  layout, confirmed (us), ran (channel): as of claim.lua; the last value is the run id of the server that this is
        sent to
  Reply {back (us; 0: nothing more comes to what is held already), held (0 or 1: points wait to be compared)}
]]
-- keys meta claims runs
-- include shard
-- include time
-- include suspects

local back = suspect_until(ARGV[#ARGV], 0, math.huge, server_time(), args.confirmed, true)
return { digits(back or 0), redis.call('ZSCORE', CLAIMS, HELD) and 1 or 0 }
