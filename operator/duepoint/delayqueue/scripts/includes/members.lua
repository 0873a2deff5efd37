-- Members of lanes: schedule (8 bytes), timing version (4); for an occurrence also kind (1), slot (8) and, if it was
-- started by hand or backfilled, a tag (4). Scores from CLAIMED on are lease expiries, not dues.
local CLAIMED = 4503599627370496 -- 2^52
local ID_LENGTH, CHAIN_LENGTH, OCCURRENCE_LENGTH, KIND_POSITION = 8, 12, 21, 13
local RETRY, QUEUED, CHECK = 1, 3, 6

local function slot_of(member)
  return (struct.unpack('>I8', member, KIND_POSITION + 1))
end
