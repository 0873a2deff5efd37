#!lua flags=allow-oom
--[[
  Read the runs of a schedule that count for its concurrency policy (delayqueue/activeruns.py), and the occurrences
  by which they are being tried or wait. With `before`, change them first, if they are as the caller has read them
  and its claim still holds the occurrence for which it asks. delayqueue/overlaps.py makes the decisions.

  ARGV  layout, lane (text), schedule (position), mark (absent: any; if the stored one differs from it, the
        reply has all occurrences of the schedule), id, member (positions; only for a claimed occurrence),
        to change them: stamp, before (positions; the stamp after it, and as it was read), gone {from, to} of runs, put {from, to}
        of run, value pairs, hasten {from, to} of members that are due at once unless they are claimed
        to let the occurrence wait: queued, record (positions; the occurrence by which it waits; no record: its own
        stays), due (us)
  Reply {changed (0 or 1), now (us), history, held (0 or 1), {run, value, ...}, {member, score, ...}}
]]
-- keys meta heads claims occ occrec wake lane active
-- include shard
-- include wake
-- include occurrences

local KEPT_SECONDS = 86400
local MOST_OCCURRENCES = 1000 -- of a schedule, in one reply
-- Kinds of the occurrences of a run, by the length of its name; manual and backfilled ones have a tag.
local KINDS_OF = { [8] = { RETRY, 2, QUEUED }, [12] = { 4, 5 } }

local schedule, now = ARGV[args.schedule], server_time()
local member = args.member and ARGV[args.member]
local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''

local function is_held()
  local token = member and tonumber(redis.call('ZSCORE', CLAIMS, ARGV[args.id]) or 'nil')
  return token and tonumber(redis.call('ZSCORE', LANE, member) or 'nil') == CLAIMED + token
end

local function let_wait()
  local queued = ARGV[args.queued]
  if queued ~= member then
    drop_occurrences(LANE, { member })
  end
  redis.call('ZADD', LANE, args.due, queued)
  redis.call('ZADD', OCC, 0, queued)
  if args.record then
    redis.call('HSET', OCCREC, queued, ARGV[args.record])
  end
end

local function change()
  for i = args.gone[1], args.gone[2] do
    redis.call('HDEL', ACTIVE, ARGV[i])
  end
  for i = args.put[1], args.put[2], 2 do
    redis.call('HSET', ACTIVE, ARGV[i], ARGV[i + 1])
  end
  redis.call('HSET', ACTIVE, '', ARGV[args.stamp])
  for i = args.hasten[1], args.hasten[2] do
    local score = tonumber(redis.call('ZSCORE', LANE, ARGV[i]) or 'nil')
    if score and score > now and score < CLAIMED then
      redis.call('ZADD', LANE, digits(now), ARGV[i])
    end
  end
  if args.queued then
    let_wait()
  end
  announce_lane(args.lane, LANE)
end

-- Adds to `tried` the occurrences that are in the lane, with their scores.
local function add_tried(tried, members)
  for _, each in ipairs(members) do
    local score = redis.call('ZSCORE', LANE, each)
    if score then
      tried[#tried + 1], tried[#tried + 2] = each, score
    end
  end
  return tried
end

local function members_of(run, value)
  local members = {}
  for i, kind in ipairs(KINDS_OF[#run] or {}) do
    members[i] = schedule .. string.sub(value, 3, 6) .. string.char(kind) .. run
  end
  return members
end

local stamp, held = redis.call('HGET', ACTIVE, '') or '', is_held()
local is_changed = args.before and stamp == ARGV[args.before] and (held or not member)
if is_changed then
  change()
end
redis.call('EXPIRE', ACTIVE, KEPT_SECONDS)
if is_changed then
  return { 1 }
end
local found, tried = redis.call('HGETALL', ACTIVE), {}
for i = 1, #found, 2 do
  add_tried(tried, members_of(found[i], found[i + 1]))
end
if args.mark and string.sub(stamp, 9) ~= history .. ' ' .. args.mark then
  add_tried(tried, occurrences_of(schedule, MOST_OCCURRENCES))
end
return { 0, digits(now), history, held and 1 or 0, found, tried }
