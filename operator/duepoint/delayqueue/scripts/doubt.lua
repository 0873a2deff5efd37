#!lua flags=allow-oom
--[[
  Whether the shard is in doubt. A server that went back is found out here as by a claim, because what is not in
  its state may be missing for that reason alone.

  KEYS
  ARGV  layout, cap (us), former, moved, ran (channel): as of claim.lua; the last value is the run id of the server that this is
        sent to
  Reply {back (us), doubt (text; '': there is none)} | {'other', run id}: as of claim.lua
]]
-- keys meta runs
-- include shard
-- include time
-- include doubt

return look_at_server(ARGV[#ARGV], server_time()) or { meta[6] or '0', meta[8] or '' }
