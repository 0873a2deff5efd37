#!lua flags=no-writes
--[[
  Return which of these commands the calling user may not use on these keys and channels. None of them is carried out.

  KEYS  1 any key of the index
  ARGV  commands {{word ...} ...}: name, subcommand, keys and channels as in a real call
  Reply {position of each command that is refused ...}
]]
local args = cmsgpack.unpack(ARGV[1])
local refused = {}
for position, words in ipairs(args.commands) do
  if not redis.acl_check_cmd(unpack(words)) then
    refused[#refused + 1] = position
  end
end
return refused
