#!lua
--[[
  Entries of one form are added to a user's stream, all or none. Refused when the server is full:
  the points stay.

  KEYS  1 stream  2 state (what is counted of it)
  ARGV  max_length (entries), bytes (of the entries), most_bytes (of the stream, about), names {from, to} of the fields, values {from, to}: those of the first
        entry, then those of the second ...
  Reply {id of the entry, ...}
  Error WRONGTYPE, OOM
]]
-- include cuts
-- include streambytes

local args = cmsgpack.unpack(ARGV[1])
local width = args.names[2] - args.names[1] + 1
local fields, ids = {}, {}
for i = 1, width do
  fields[2 * i - 1] = ARGV[args.names[1] + i - 1]
end
local last = args.values[2] - width + 1
for first = args.values[1], last - 1, width do
  for i = 1, width do
    fields[2 * i] = ARGV[first + i - 1]
  end
  ids[#ids + 1] = redis.call('XADD', KEYS[1], '*', unpack(fields))
end
for i = 1, width do
  fields[2 * i] = ARGV[last + i - 1]
end
-- The stream is cut back once: each argument costs more than what it asks for here.
ids[#ids + 1] = redis.call('XADD', KEYS[1], 'MAXLEN', '~', args.max_length, '*', unpack(fields))
bound_stream(KEYS[1], KEYS[2], ids[#ids], args.bytes, args.most_bytes)
return ids
