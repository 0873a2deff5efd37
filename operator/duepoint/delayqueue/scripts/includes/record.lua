-- What `leases` says of a claim: format, worker, {lane, {member, due, ...}, ...}, when its points
-- were claimed first (us): a claim that takes over the points of another one keeps that instant.

local RECORD_FORMAT = 2

-- Whether this names a lane: what does not, nobody of us wrote.
local function is_lane(name)
  return type(name) == 'string' and string.find(name, '^%d+$') ~= nil
end

-- Worker, points by lane, and when they were claimed first; '', none and nil where there is no
-- record, or one that this version cannot read to its end.
local function open_record(packed)
  local is_read, worker, by_lane, first = pcall(function()
    local format, worker, by_lane, first = cmsgpack.unpack(packed)
    assert(format == RECORD_FORMAT and type(worker) == 'string' and type(first) == 'number')
    for i = 1, #by_lane, 2 do
      assert(is_lane(by_lane[i]))
      local found = by_lane[i + 1]
      for j = 1, #found, 2 do
        assert(type(found[j]) == 'string' and tonumber(found[j + 1]))
      end
    end
    return worker, by_lane, first
  end)
  if is_read then
    return worker, by_lane, first
  end
  return '', {}
end

-- member -> due as text, of every point that the claim began with; its lanes, in order; when they
-- were claimed first; and by whom they are held.
local function read_record(packed)
  local dues, lanes = {}, {}
  local worker, by_lane, first = open_record(packed)
  for i = 1, #by_lane, 2 do
    lanes[#lanes + 1] = by_lane[i]
    local found = by_lane[i + 1]
    for j = 1, #found, 2 do
      dues[found[j]] = found[j + 1]
    end
  end
  return dues, lanes, first, worker
end
