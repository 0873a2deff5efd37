#!lua flags=allow-oom
--[[
  Runs of a schedule have ended: they are not active any more, and of the slots that wait as many
  are due at once, the oldest first. A run that somebody is trying again stays; a Job that is told
  of has ended. Told twice, or of runs that are not known, it calls up one slot, which asks for
  itself whether it may start.

  KEYS  1 meta  2 heads  3 wake  4 lane  5 active  6 waiting
  ARGV  layout, lane (number), id, version (positions; of the schedule and its timing),
        runs {from, to}, jobs {from, to} of names, look (position of a run, or 0)
  Reply {state of that run or '', runs removed, slots called up}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include active

local META, HEADS, WAKE, LANE, RUNS, WAITING = unpack(KEYS)
local refused = refusal(META)
if refused then
  return refused
end
local schedule, version = ARGV[args.id], ARGV[args.version]
local now, before = server_time(), shard_head(HEADS)
local removed = 0

local function remove(run, is_over)
  local known = redis.call('HGET', RUNS, run)
  if not known then
    return
  end
  is_over = is_over and state_of_run(known) == ACTIVE
  if is_over or not score_of_run(LANE, schedule, run, known) then
    removed = removed + redis.call('HDEL', RUNS, run)
  end
end

for i = args.runs[1], args.runs[2] do
  remove(ARGV[i], false)
end
if args.jobs[2] >= args.jobs[1] then
  local over = {}
  for i = args.jobs[1], args.jobs[2] do
    over[ARGV[i]] = true
  end
  local all = redis.call('HGETALL', RUNS)
  for i = 1, #all, 2 do
    if all[i] ~= '' and is_of_job(all[i + 1]) and over[string.sub(all[i + 1], 7)] then
      remove(all[i], true)
    end
  end
end

local members, scores = waiting_members(WAITING, LANE, version, now)
local called = 0
for i = 1, math.min(math.max(removed, 1), #members) do
  called = called + hasten(LANE, members[i], scores[i], now)
end
refresh_head(HEADS, args.lane, LANE)
announce_head(HEADS, before, WAKE, now)
local state = args.look > 0 and redis.call('HGET', RUNS, ARGV[args.look]) or ''
return { string.sub(state or '', 1, 1), removed, called }
