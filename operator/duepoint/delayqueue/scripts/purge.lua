#!lua flags=allow-oom
--[[
  These dead letters are gone, and what is counted of them. One that is not there changes nothing.

  KEYS  1 meta  2 dead  3 order  4 sums (deadletters.lua)
  ARGV  layout, letters {from, to} of ids
  Reply how many were there
]]
local META, DEAD, ORDER, SUMS = unpack(KEYS)
-- include shard
-- include unburying

local removed = 0
for i = args.letters[1], args.letters[2] do
  if remove_letter(ARGV[i]) then
    removed = removed + 1
  end
end
return removed
