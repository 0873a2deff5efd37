#!lua flags=allow-oom
--[[
  Runs of a schedule have ended: they are not active any more, and of the slots that wait as many
  are due at once, the oldest first. A run that somebody is trying again stays; a Job that is told
  of has ended. Told twice, or of runs that are not known, it calls up one slot, which asks for
  itself whether it may start. With every, all that wait are called up, at most as
  many as one script may: there is more room. Those of an older timing are due at once, to end.

  KEYS  1 meta  2 heads  3 wake  4 lane  5 active  6 looks  7 waiting
  ARGV  layout, lane (number), id, version (positions; of the schedule and its timing),
        runs {from, to}, jobs {from, to} of name, run pairs (one for each run that a Job of that
        name can be of), look (position of a run, or 0), every (boolean)
  Reply {state of that run or '', runs removed, slots called up}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include active
-- include waiting

local META, HEADS, WAKE, LANE, RUNS, LOOKS, WAITING = unpack(KEYS)
local refused = refusal(META)
if refused then
  return refused
end
local schedule, version = ARGV[args.id], ARGV[args.version]
local now, before = server_time(), shard_head(HEADS)
local removed = 0

-- Those of these runs that have ended go: a run of a Job that is told of, if it was not replaced
-- meanwhile, and what nobody is trying any more.
local function remove(fields, values, are_over)
  local tried, gone = tried_scores(LANE, schedule, fields, values), {}
  for i, run in ipairs(fields) do
    local is_over = are_over and state_of_run(values[i]) == ACTIVE
    if is_over or not tried[i] then
      gone[#gone + 1] = run
    end
  end
  if #gone > 0 then
    redis.call('ZREM', LOOKS, unpack(gone))
    removed = removed + redis.call('HDEL', RUNS, unpack(gone))
  end
end

-- Of what is asked for in steps of `step` from `at` on: the runs that are known, what stands under
-- them, and where they were asked for.
local function known_runs(from, to, at, step)
  local asked, fields, values, places = {}, {}, {}, {}
  for i = from + at, to, step do
    asked[#asked + 1] = ARGV[i]
  end
  for i, known in ipairs(#asked > 0 and redis.call('HMGET', RUNS, unpack(asked)) or {}) do
    if known then
      fields[#fields + 1], values[#values + 1] = asked[i], known
      places[#places + 1] = from + (i - 1) * step
    end
  end
  return fields, values, places
end

local function remove_jobs()
  local fields, values, places = known_runs(args.jobs[1], args.jobs[2], 1, 2)
  local found, over, of_over = {}, {}, {}
  for i, known in ipairs(values) do
    local job = ARGV[places[i]]
    if is_of_job(known) and string.sub(known, 7) == job then
      found[job] = true
      over[#over + 1], of_over[#of_over + 1] = fields[i], known
    end
  end
  remove(over, of_over, true)
  return found
end

-- Names that tell no run, or not theirs, are looked for where that is little.
local function remove_by_name(found)
  local wanted, over, of_over = {}, {}, {}
  local all = redis.call('HGETALL', RUNS)
  for i = args.jobs[1], args.jobs[2], 2 do
    wanted[ARGV[i]] = not found[ARGV[i]]
  end
  for i = 1, #all, 2 do
    if all[i] ~= '' and is_of_job(all[i + 1]) and wanted[string.sub(all[i + 1], 7)] then
      over[#over + 1], of_over[#of_over + 1] = all[i], all[i + 1]
    end
  end
  remove(over, of_over, true)
end

local fields, values = known_runs(args.runs[1], args.runs[2], 0, 1)
remove(fields, values, false)
if args.jobs[2] >= args.jobs[1] then
  local found = remove_jobs()
  if redis.call('HLEN', RUNS) <= MOST_SCANNED then
    remove_by_name(found)
  end
end

local members, scores, called = waiting_members(WAITING, LANE, version, now,
  args.every and MOST_CALLED or math.min(math.max(removed, 1), MOST_CALLED))
for i = 1, #members do
  called = called + hasten(LANE, members[i], scores[i], now)
end
refresh_head(HEADS, args.lane, LANE)
announce_head(HEADS, before, WAKE, now)
local state = args.look > 0 and redis.call('HGET', RUNS, ARGV[args.look]) or ''
return { string.sub(state or '', 1, 1), removed, called }
