#!lua
--[[
  One entry is added to a user's stream. Refused when the server is full: the point stays.

  KEYS  1 stream
  ARGV  max_length (entries), fields {from, to} of name, value pairs
  Reply id of the entry
  Error WRONGTYPE, OOM
]]
local args = cmsgpack.unpack(ARGV[1])
return redis.call('XADD', KEYS[1], 'MAXLEN', '~', args.max_length, '*',
  unpack(ARGV, args.fields[1], args.fields[2]))
