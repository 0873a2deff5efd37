-- The record of a definition (delayqueue/definitions/codec.py, format 1).
local FORMAT = 1
local ARMED, COMPLETED = 0, 2
local UID, KIND, GENERATION, CREATED, NAME_LENGTH, NAME = 12, 28, 36, 40, 44, 45
local RULE_INLINE, UID_TEXT, COUNTED, PAYLOAD, ONCE, NUMBERED = 1, 2, 4, 8, 16, 32
local COUNT_LENGTH, MOST_COUNTED, INSTANT_LENGTH, MAC_LENGTH, NUMBERS_LENGTH = 4, 4294967295, 7, 8, 12

-- Uid and generation.
local function identity(record)
  local generation = struct.unpack('>I4', string.sub(record, GENERATION, CREATED - 1))
  return string.sub(record, UID, KIND - 1), generation
end

local function has_flag(record, flag)
  return math.floor(string.byte(record, 3) / flag) % 2 == 1
end

-- Whether the record counts runs: with maxRuns it ends with the number of slots that have started.
local function counts_runs(record)
  return has_flag(record, COUNTED)
end

local function name_of(record)
  return string.sub(record, NAME, NAME + string.byte(record, NAME_LENGTH) - 1)
end

-- Returns the position after a text with its length; raises an error if the record is cut short.
local function after_text(record, at)
  local high, low = string.byte(record, at, at + 1)
  return at + 2 + high * 256 + low
end

-- Returns the position after name, numbers, rule and uid: of the instant, if there is one; likewise.
local function after_texts(record)
  local at = NAME + string.byte(record, NAME_LENGTH) + (has_flag(record, NUMBERED) and NUMBERS_LENGTH or 0)
  for _, flag in ipairs({ RULE_INLINE, UID_TEXT }) do
    if has_flag(record, flag) then
      at = after_text(record, at)
    end
  end
  return at
end

-- Returns the one instant of the record in its stored form; nil if it has none, or is unreadable.
local function instant_of(record)
  if string.byte(record, 1) ~= FORMAT or not has_flag(record, ONCE) then
    return nil
  end
  local is_read, at = pcall(after_texts, record)
  return is_read and string.sub(record, at, at + INSTANT_LENGTH - 1) or nil
end

-- Whether this version can read all of the record: of its own format, and not cut short.
local function is_readable(record)
  if string.byte(record, 1) ~= FORMAT then
    return false
  end
  local is_read, position = pcall(function()
    local at = after_texts(record) + (has_flag(record, ONCE) and INSTANT_LENGTH or 0)
    if has_flag(record, PAYLOAD) then
      at = after_text(record, at + MAC_LENGTH)
    end
    return at + (counts_runs(record) and COUNT_LENGTH or 0)
  end)
  return is_read and position == #record + 1
end

local function state_of(record)
  return string.byte(record, 2)
end

local function fingerprint_of(record)
  return string.sub(record, 8, 11)
end

local function version_of(record)
  return string.sub(record, 4, 7)
end

local function with_state(record, state)
  return string.sub(record, 1, 1) .. string.char(state) .. string.sub(record, 3)
end

local function started_of(record)
  return (struct.unpack('>I4', string.sub(record, -COUNT_LENGTH)))
end

local function with_started(record, started)
  return string.sub(record, 1, -COUNT_LENGTH - 1) .. struct.pack('>I4', math.min(started, MOST_COUNTED))
end

-- Whether this is the record of an armed definition whose chain point this is.
local function is_armed_as(record, id, chain)
  return record and state_of(record) == ARMED and id .. version_of(record) == chain
end

-- Marks the definition as completed, unless it was edited meanwhile.
local function complete(bucket, id, chain)
  local record = redis.call('HGET', bucket, id)
  if is_armed_as(record, id, chain) then
    redis.call('HSET', bucket, id, with_state(record, COMPLETED))
  end
end

-- Returns the record if it counts runs; else nil.
local function counting_record(bucket, id)
  local record = redis.call('HGET', bucket, id)
  return record and is_readable(record) and counts_runs(record) and record or nil
end
