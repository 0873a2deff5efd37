#!lua
--[[
  One entry is added to a user's stream. Refused when the server is full: the point stays.

  KEYS  1 stream  2 state (what is counted of it)
  ARGV  max_length (entries), bytes (of the entry), most_bytes (of the stream, about),
        fields {from, to} of name, value pairs
  Reply id of the entry
  Error WRONGTYPE, OOM
]]
-- include cuts
-- include streambytes

local args = cmsgpack.unpack(ARGV[1])
local added = redis.call('XADD', KEYS[1], 'MAXLEN', '~', args.max_length, '*',
  unpack(ARGV, args.fields[1], args.fields[2]))
bound_stream(KEYS[1], KEYS[2], added, args.bytes, args.most_bytes)
return added
