-- include definition
-- `ended` lists one-offs of sets that have ended and left, so that a repeated request does not store one again: id and
-- instant of each, by the time it left (us), for the last minute and bounded in number. It may be lost.

-- Returns the entry for this id and record; nil if it is not a one-off.
local function one_off(id, record)
  local instant = instant_of(record)
  return instant and id .. instant
end
