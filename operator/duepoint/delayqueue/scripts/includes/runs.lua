-- include time
-- include cuts
-- `runs` holds about `runs_bytes` at most, and nothing older than `runs_age` (ms); `meta` counts dropped entries.
local RUNS_OVERHEAD, has_news = 64, false

local function drop_outcomes(oldest)
  local dropped = redis.call('XTRIM', RUNS, 'MINID', '~', oldest, 'LIMIT', 0)
  if dropped > 0 then
    redis.call('HINCRBY', META, 'runs_dropped', dropped)
  end
end

-- Adds a value's counts of members, its third part (run.pack), to META `t<uid>` of their set: five sums and the newest
-- slot. A lost claim counts nothing: others end its slots, or only a reply was lost. Returns whether it has other parts.
local function count_members(value, is_lost)
  if string.byte(value) ~= 147 then
    return true
  end
  local news = cmsgpack.unpack(value)
  for uid, more in pairs(is_lost and {} or news[3]) do
    local field, sums = 't' .. uid, {}
    for known in string.gmatch(redis.call('HGET', META, field) or '0 0 0 0 0 0', '%d+') do
      local number = more[#sums + 1]
      sums[#sums + 1] = digits(#sums == 5 and math.max(known, number) or known + number)
    end
    redis.call('HSET', META, field, table.concat(sums, ' '))
  end
  return #news[1] + #news[2] > 0
end

-- Adds an outcome. That of a lost claim is marked `lost`: another owner will end the slots.
local function add_outcome(value, is_lost)
  if not count_members(value, is_lost) then
    return
  end
  local entry = redis.call('XADD', RUNS, '*', 'o', value, unpack(is_lost and { 'lost', '1' } or {}))
  has_news = true
  local oldest = oldest_kept(META, 'runs_', entry, #value + RUNS_OVERHEAD, args.runs_bytes)
  if oldest then
    drop_outcomes(oldest)
  end
end

-- Wakes the reporter if there is any new outcome.
local function report_outcomes()
  if has_news then
    drop_outcomes(digits(math.max(0, server_time() / 1000 - args.runs_age)))
    redis.call('SPUBLISH', RAN, '')
  end
end
