#!lua flags=allow-oom
--[[
  These dead letters are gone, and what is counted of them. One that is not there changes nothing.

  ARGV  layout, letters {from, to} of ids
  Reply how many were there
]]
-- keys meta dead letters letter_sums
-- include shard
-- include unburying

local removed = 0
for i = args.letters[1], args.letters[2] do
  if remove_letter(ARGV[i]) then
    removed = removed + 1
  end
end
return removed
