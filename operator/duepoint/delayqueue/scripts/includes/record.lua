-- include members
-- What `leases` says of a claim: format, worker, {lane, {member, due, ...}, ...}, when its points
-- were claimed first (us): a claim that takes over the points of another one keeps that instant.
local RECORD_FORMAT = 2

-- Whether this names a lane; no process of ours writes anything else.
local function is_lane(name)
  return type(name) == 'string' and string.find(name, '^[ns].') ~= nil
end

-- member -> due as text, of every point that the claim began with; its lanes, in order; when they
-- were claimed first; its worker; its points by lane. All are empty where there is no record, or one that this
-- version cannot read to its end.
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

-- What a claimed point was due at, by its record; an added occurrence is not in it and was due
-- at its slot, which lies in the past. A chain without a due would lose the slots
-- in between if it were due now: nil, and the sweep finds out where it belongs. Anything else: now.
local function due_before(dues, member, now)
  if dues[member] then
    return dues[member]
  end
  if #member == CHAIN_LENGTH then
    return nil
  end
  return #member >= OCCURRENCE_LENGTH and math.min(slot_of(member), now) or now
end
