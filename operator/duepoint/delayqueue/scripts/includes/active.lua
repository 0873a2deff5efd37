-- Runs that count for a concurrency policy. A HASH for each schedule that has one: slot and run tag
-- (the end of a member) -> state, target, timing version (4 bytes), name of the Job or ''; under the
-- empty field what the set is complete for: the server's history and the definition. Beside it a
-- ZSET of the same fields in the order in which they are to be looked at: the number of the last
-- look that found the run active (0: none), GOING or DONE; under the empty member LOOKS_FROM and
-- the number of the last look. So each question reads a piece, however many runs there are. Whatever
-- is not true any more is found out before anything is decided by it, and a set that is gone, or
-- whose two halves differ, is made again.

local ACTIVE, REPLACED, SURPLUS = 'A', 'R', 'F'
local JOB = 'J'
local KEPT_SECONDS = 86400
local GOING = 2 ^ 51 -- replaced, and its Job is to be deleted
local DONE = 2 ^ 51 + 1 -- replaced or one too many: it ends with its occurrence
local LOOKS_FROM = 2 ^ 52
local MOST_SCANNED = 500 -- runs among which a Job is looked for by a name that tells no slot
-- Kinds under which a run is tried; manual and backfilled ones carry a tag.
local KINDS_OF = { [8] = { 1, 2, 3 }, [12] = { 4, 5 } }

local function state_of_run(value)
  return string.sub(value, 1, 1)
end

local function is_of_job(value)
  return string.sub(value, 2, 2) == JOB
end

local function number(value)
  return string.format('%.0f', value)
end

-- -- the set ----------------------------------------------------------------------------------

local function is_whole(runs, looks)
  return redis.call('HLEN', runs) == redis.call('ZCOUNT', looks, '-inf', '+inf')
end

local function begin_set(runs, looks)
  redis.call('HSETNX', runs, '', '')
  redis.call('ZADD', looks, 'NX', number(LOOKS_FROM), '')
end

local function place_of_run(value)
  if state_of_run(value) == ACTIVE then
    return 0
  end
  return state_of_run(value) == REPLACED and is_of_job(value) and GOING or DONE
end

local function put_run(runs, looks, run, value)
  begin_set(runs, looks)
  redis.call('HSET', runs, run, value)
  redis.call('ZADD', looks, number(place_of_run(value)), run)
end

local function drop_run(runs, looks, run)
  redis.call('ZREM', looks, run)
  return redis.call('HDEL', runs, run)
end

local function count_active(looks)
  return redis.call('ZCOUNT', looks, 0, '(' .. number(GOING))
end

-- A look has a number: a run with that number or a later one was looked at since it began.
local function begin_look(runs, looks, known)
  begin_set(runs, looks)
  local last = tonumber(redis.call('ZSCORE', looks, '')) - LOOKS_FROM
  if known == 0 or known > last then
    last = math.max(known, last + 1)
    redis.call('ZADD', looks, number(LOOKS_FROM + last), '')
  end
  return known == 0 and last or known
end

-- What a look has found: ends, Jobs that nobody had told of, runs that are active.
local function learn(runs, looks, look, over, seen, verified)
  for i = over[1], over[2], 2 do
    if redis.call('HGET', runs, ARGV[i]) == ARGV[i + 1] then
      drop_run(runs, looks, ARGV[i])
    end
  end
  if seen[2] >= seen[1] then
    begin_set(runs, looks)
    local fields, values, order = {}, {}, {}
    for i = seen[1], seen[2], 2 do
      fields[#fields + 1] = ARGV[i]
    end
    for i, known in ipairs(redis.call('HMGET', runs, unpack(fields))) do
      if not known then
        values[#values + 1], values[#values + 2] = fields[i], ARGV[seen[1] + 2 * i - 1]
        order[#order + 1], order[#order + 2] = 0, fields[i]
      end
    end
    if #values > 0 then
      redis.call('HSET', runs, unpack(values))
      redis.call('ZADD', looks, unpack(order))
    end
  end
  local found = {}
  for i = verified[1], verified[2] do
    found[#found + 1], found[#found + 2] = number(look), ARGV[i]
  end
  if #found > 0 then
    redis.call('ZADD', looks, 'XX', 'GT', unpack(found))
  end
end

-- -- occurrences of runs ----------------------------------------------------------------------

-- Scores of the occurrences by which these runs are being tried or wait to be, and these; false
-- where there is none.
local function tried_scores(lane_key, schedule, fields, values)
  local members, of, scores, found = {}, {}, {}, {}
  for i, run in ipairs(fields) do
    scores[i] = false
    for _, kind in ipairs(values[i] and KINDS_OF[#run] or {}) do
      of[#of + 1] = i
      members[#members + 1] = schedule .. string.sub(values[i], 3, 6) .. string.char(kind) .. run
    end
  end
  if #members > 0 then
    for j, score in ipairs(redis.call('ZMSCORE', lane_key, unpack(members))) do
      if score and not scores[of[j]] then
        scores[of[j]], found[of[j]] = tonumber(score), members[j]
      end
    end
  end
  return scores, found
end

-- Due at once, unless a worker holds it.
local function hasten(lane_key, member, score, now)
  if score > now and score < CLAIMED then
    redis.call('ZADD', lane_key, 'XX', number(now), member)
    return 1
  end
  return 0
end
