#!lua flags=allow-oom
--[[
  Runs of a schedule have ended: they are not active any more, and of the slots that wait as many are due at
  once, the oldest first. A run that a worker is trying again stays; a Job that is named has ended. Called
  twice, or with runs that are not known, it calls up one slot, which finds out itself whether it may start.
  With every, all that wait are called up, at most as many as one script may: there is more room. Those of an
  older timing are due at once, to end.

  ARGV  layout, lane (number), id, version (positions; of the schedule and its timing),
        runs {from, to}, jobs {from, to} of name, run pairs (one for each run that a Job of that
        name can be of), look (position of a run, or 0), every (boolean)
  Reply {state of that run or '', runs removed, slots called up}
]]
-- keys meta heads wake lane active looks waiting
-- include shard
local schedule, version = ARGV[args.id], ARGV[args.version]
-- include wake
-- include waiting

local MOST_SCANNED = 500 -- runs among which those of a Job are looked for by its name alone
local now, before, removed = server_time(), shard_head(), 0

-- Those of these runs that have ended go: a run of a Job that is over, if it was not replaced
-- meanwhile, and what is not tried any more.
local function remove(fields, values, are_over)
  local tried, gone = tried_scores(fields, values), {}
  for i, run in ipairs(fields) do
    if (are_over and state_of_run(values[i]) == RUNNING) or not tried[i] then
      gone[#gone + 1] = run
    end
  end
  removed = removed + drop_runs(gone)
end

-- Of the runs that stand in ARGV, every `step`th from `first` on, those that the set has; with `jobs` only where it is
-- the run of the Job whose name stands before it.
local function remove_named(first, last, step, jobs)
  local named, fields, values = {}, {}, {}
  for i = first, last, step do
    named[#named + 1] = ARGV[i]
  end
  for i, known in ipairs(#named > 0 and redis.call('HMGET', ACTIVE, unpack(named)) or {}) do
    local job = jobs and ARGV[first + (i - 1) * step - 1]
    if known and (not jobs or (is_of_job(known) and string.sub(known, 7) == job)) then
      fields[#fields + 1], values[#values + 1] = named[i], known
    end
  end
  remove(fields, values, jobs)
end

-- All runs of these Jobs: a name may show no run, or not its own.
local function remove_of_jobs()
  local wanted, fields, values = {}, {}, {}
  for i = args.jobs[1], args.jobs[2], 2 do
    wanted[ARGV[i]] = true
  end
  local all = redis.call('HGETALL', ACTIVE)
  for i = 1, #all, 2 do
    if all[i] ~= '' and is_of_job(all[i + 1]) and wanted[string.sub(all[i + 1], 7)] then
      fields[#fields + 1], values[#values + 1] = all[i], all[i + 1]
    end
  end
  remove(fields, values, true)
end

remove_named(args.runs[1], args.runs[2], 1, false)
if args.jobs[2] >= args.jobs[1] and redis.call('HLEN', ACTIVE) <= MOST_SCANNED then
  remove_of_jobs()
elseif args.jobs[2] >= args.jobs[1] then
  remove_named(args.jobs[1] + 1, args.jobs[2], 2, true)
end

local called = call_up(now, args.every and MOST_CALLED or math.max(removed, 1))
refresh_head(args.lane, LANE)
announce_head(before, now)
local state = args.look > 0 and redis.call('HGET', ACTIVE, ARGV[args.look]) or ''
return { string.sub(state or '', 1, 1), removed, called }
