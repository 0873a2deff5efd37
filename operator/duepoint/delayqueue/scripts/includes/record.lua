-- include members
-- The record of a claim in `leases`: format, worker, {lane, {member, due, ...}, ...}, the time of the points'
-- first claim (us): a claim that takes over the points of another one keeps that instant.
local RECORD_FORMAT = 2

-- Whether this names a lane; our processes write nothing else.
local function is_lane(name)
  return type(name) == 'string' and string.find(name, '^[ns].') ~= nil
end

-- Returns member -> due as text, for every point that the claim began with; its lanes, in order; the time of
-- their first claim; its worker; its points by lane. All are empty if there is no record, or one that this
-- version cannot read in full.
local function read_record(packed)
  local dues, lanes = {}, {}
  local is_read, worker, by_lane, first = pcall(function()
    local format, worker, by_lane, first = cmsgpack.unpack(packed)
    assert(format == RECORD_FORMAT and type(worker) == 'string' and type(first) == 'number')
    for i = 1, #by_lane, 2 do
      local lane, found = by_lane[i], by_lane[i + 1]
      assert(is_lane(lane))
      lanes[#lanes + 1] = lane
      for j = 1, #found, 2 do
        assert(type(found[j]) == 'string' and tonumber(found[j + 1]))
        dues[found[j]] = found[j + 1]
      end
    end
    return worker, by_lane, first
  end)
  if not is_read then
    return {}, {}, nil, '', {}
  end
  return dues, lanes, first, worker, by_lane
end

-- Returns the former due of a claimed point, from the record. An added occurrence is not in it and was due
-- at its slot, which is in the past. For a chain without a due returns nil: due now, it would lose the slots
-- in between, so the sweep finds its due. For anything else returns now.
local function due_before(dues, member, now)
  if dues[member] then
    return dues[member]
  end
  if #member == CHAIN_LENGTH then
    return nil
  end
  return #member >= OCCURRENCE_LENGTH and math.min(slot_of(member), now) or now
end
