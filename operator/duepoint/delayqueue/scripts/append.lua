#!lua
--[[
  Add entries of one form to a user's stream, all or none. A full server refuses it, and the points
  stay.

  KEYS  1 stream  2 state (its counters)
  ARGV  entries {group}: one group of entries, as `deliver` has them
  Reply {id of the entry, ...}
  Error WRONGTYPE, OOM
]]
-- include entries
local args, ids = cmsgpack.unpack(ARGV[1]), {}
local refused = append_group(args.entries[1], ids)
if refused ~= '' then
  return redis.error_reply(refused)
end
return ids
