-- include definition
-- One-offs of sets that have ended and left, so that a repeated request makes none of them again: `ended` has id and
-- instant of each, by when it left (us), of the last minute and not too many. It may be lost.

-- What this id and record is remembered as; nil where it is not a one-off.
local function one_off(id, record)
  local instant = instant_of(record)
  return instant and id .. instant
end
