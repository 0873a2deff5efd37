-- A batch of schedules on its way to another shard: an id of 16 bytes among the claims, its expiry
-- the time from which anybody finishes it; in `leases` <batch> -> what was taken, and i<id> ->
-- batch for each schedule, whose edits wait that long.

local MOVE_LENGTH = 16
local OCCURRENCE_LENGTH = 21
local MOVE_FORMAT = 1
local MOVE_PATIENCE = 5000000 -- us that a move may take before others finish it

local function mark_of(id)
  return 'i' .. id
end

local function pack_move(taken)
  return cmsgpack.pack({ MOVE_FORMAT, taken })
end

local function is_traveller(one)
  local is_whole = type(one[1]) == 'string' and string.find(one[1], '^%d+$')
    and type(one[2]) == 'number' and type(one[3]) == 'string' and type(one[4]) == 'string'
    and (one[5] == '' or tonumber(one[5])) and #one[6] % 3 == 0
  for i = 1, is_whole and #one[6] or 0 do
    is_whole = is_whole and type(one[6][i]) == 'string'
  end
  return is_whole
end

-- What a batch took; nothing where nobody of us wrote that: its schedules are here still, and go
-- with another batch.
local function read_move(packed)
  local is_read, taken = pcall(function()
    local listed = cmsgpack.unpack(packed)[2]
    for _, one in ipairs(listed) do
      assert(is_traveller(one))
    end
    return listed
  end)
  return is_read and taken or {}
end
