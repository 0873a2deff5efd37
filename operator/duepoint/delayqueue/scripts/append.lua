#!lua
--[[
  Entries of one form are added to a user's stream, all or none. Refused when the server is full: the points
  stay.

  KEYS  1 stream  2 state (what is counted of it)
  ARGV  entries {group}: one group of entries, as `deliver` has them; its members and outcome are not used
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
