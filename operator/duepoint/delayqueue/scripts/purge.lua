#!lua flags=allow-oom
--[[
  These dead letters are gone, and what is counted of them. One that is not there changes nothing.

  KEYS  1 meta  2 dead  3 order  4 sums (`includes/letters.lua`)
  ARGV  layout, letters {from, to} of ids
  Reply how many were there
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include letters
-- include unburying

local META, DEAD, ORDER, SUMS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local refused = refusal(META)
if refused then
  return refused
end
local removed = 0
for i = args.letters[1], args.letters[2] do
  if remove_letter(DEAD, ORDER, SUMS, ARGV[i]) then
    removed = removed + 1
  end
end
return removed
