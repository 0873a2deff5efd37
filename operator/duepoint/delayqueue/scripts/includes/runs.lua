-- `runs` holds about `runs_bytes` at most, and nothing older than `runs_age` (ms); what goes is counted in
-- `meta`. Bytes are counted as they come in (see cuts.lua).
local RUNS_OVERHEAD, RUNS_PAUSE = 64, 3600000000

local function drop_outcomes(meta, runs, oldest)
  local dropped = redis.call('XTRIM', runs, 'MINID', '~', oldest, 'LIMIT', 0)
  if dropped > 0 then
    redis.call('HINCRBY', meta, 'runs_dropped', dropped)
  end
end

local function drop_aged_outcomes(meta, runs)
  local now = server_time()
  if now - (tonumber(redis.call('HGET', meta, 'runs_swept')) or 0) > RUNS_PAUSE then
    redis.call('HSET', meta, 'runs_swept', string.format('%.0f', now))
    drop_outcomes(meta, runs, string.format('%.0f', math.max(0, now / 1000 - args.runs_age)))
  end
end

local function add_outcome(meta, runs, bytes, ...)
  local entry, size = redis.call('XADD', runs, '*', ...), bytes + RUNS_OVERHEAD
  local step, total = args.runs_bytes / CUT_STEPS, redis.call('HINCRBY', meta, 'runs_in', size)
  local steps = math.floor(total / step) - math.floor((total - size) / step)
  local oldest = steps > 0 and note_cuts(meta, 'runs_cuts', entry, steps)
  if oldest then
    drop_outcomes(meta, runs, oldest)
  end
end

-- Adds outcomes and tells the reporter once; `more` are positions in ARGV of others. Those of a claim
-- that is lost say so: the slots are still somebody else's to end.
local function write_outcomes(meta, runs, ran, more, is_lost)
  local told = more or {}
  for i = args.outcomes[1], args.outcomes[2] do
    told[#told + 1] = i
  end
  for _, i in ipairs(told) do
    if is_lost then
      add_outcome(meta, runs, #ARGV[i], 'o', ARGV[i], 'lost', '1')
    else
      add_outcome(meta, runs, #ARGV[i], 'o', ARGV[i])
    end
  end
  if #told > 0 then
    drop_aged_outcomes(meta, runs)
    redis.call('SPUBLISH', ran, '')
  end
end
