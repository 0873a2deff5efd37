-- The head of a packed definition (schedules/definition.py, format 1):
-- format, state, flags, timing version (4), fingerprint (4), uid (16, or length + text), generation
-- (varint) ...

local FORMAT = 1
local ARMED, COMPLETED = 0, 2
local UID = 12
local COUNT_LENGTH, MOST_COUNTED = 4, 4294967295

local function varint(record, position)
  local number, factor = 0, 1
  while true do
    local byte = string.byte(record, position)
    position = position + 1
    number = number + (byte % 128) * factor
    if byte < 128 then
      return number, position
    end
    factor = factor * 128
  end
end

local function identity(record)
  local position, length = UID, 16
  if string.byte(record, 3) % 2 == 0 then
    length, position = varint(record, position)
  end
  local uid = string.sub(record, position, position + length - 1)
  local generation = varint(record, position + length)
  return uid, generation
end

-- Of schedules with maxRuns a record ends with how many of their slots have started.
local function counts_runs(record)
  return math.floor(string.byte(record, 3) / 4) % 2 == 1
end

-- Whether this version can read all of the record: of its own format, and not cut short.
local function is_readable(record)
  if string.byte(record, 1) ~= FORMAT then
    return false
  end
  local function past_text(position)
    local length
    length, position = varint(record, position)
    return position + length
  end
  local is_read, position = pcall(function()
    local flags, at = string.byte(record, 3), UID + 16
    if flags % 2 == 0 then
      at = past_text(UID)
    end
    for _ = 1, 7 do -- generation, timing generation, collision, created, not-before, two numbers
      at = select(2, varint(record, at))
    end
    if math.floor(flags / 2) % 2 == 1 then
      at = past_text(at)
    else
      at = select(2, varint(record, at))
    end
    return past_text(at) + (counts_runs(record) and COUNT_LENGTH or 0)
  end)
  return is_read and position == #record + 1
end

local function state_of(record)
  return string.byte(record, 2)
end

local function version_of(record)
  return string.sub(record, 4, 7)
end

local function fingerprint_of(record)
  return string.sub(record, 8, 11)
end

local function with_state(record, state)
  return string.sub(record, 1, 1) .. string.char(state) .. string.sub(record, 3)
end

local function started_of(record)
  return (struct.unpack('>I4', string.sub(record, -COUNT_LENGTH)))
end

local function with_started(record, started)
  return string.sub(record, 1, -COUNT_LENGTH - 1)
    .. struct.pack('>I4', math.min(started, MOST_COUNTED))
end
