-- include time
-- include cuts
-- `runs` holds about `runs_bytes` at most, and nothing older than `runs_age` (ms); what goes is counted in `meta`.
local RUNS_OVERHEAD, RUNS_PAUSE = 64, 3600000000

local function drop_outcomes(oldest)
  local dropped = redis.call('XTRIM', RUNS, 'MINID', '~', oldest, 'LIMIT', 0)
  if dropped > 0 then
    redis.call('HINCRBY', META, 'runs_dropped', dropped)
  end
end

local function add_outcome(bytes, ...)
  local entry = redis.call('XADD', RUNS, '*', ...)
  local oldest = oldest_kept(META, 'runs_', entry, bytes + RUNS_OVERHEAD, args.runs_bytes)
  if oldest then
    drop_outcomes(oldest)
  end
end

-- Adds outcomes and wakes the reporter once; `more` are positions in ARGV of others. Those of a claim
-- that is lost are marked `lost`: the slots are still another owner's to end.
local function write_outcomes(more, is_lost)
  local positions = more or {}
  for i = args.outcomes[1], args.outcomes[2] do
    positions[#positions + 1] = i
  end
  for _, i in ipairs(positions) do
    if is_lost then
      add_outcome(#ARGV[i], 'o', ARGV[i], 'lost', '1')
    else
      add_outcome(#ARGV[i], 'o', ARGV[i])
    end
  end
  if #positions == 0 then
    return
  end
  local now = server_time()
  if now - (tonumber(redis.call('HGET', META, 'runs_swept')) or 0) > RUNS_PAUSE then
    redis.call('HSET', META, 'runs_swept', digits(now))
    drop_outcomes(digits(math.max(0, now / 1000 - args.runs_age)))
  end
  redis.call('SPUBLISH', RAN, '')
end
