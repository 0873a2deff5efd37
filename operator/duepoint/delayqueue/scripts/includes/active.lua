-- include time
-- Runs that count for a concurrency policy. A HASH for each schedule that has one: slot and run tag
-- (the end of a member) -> state, target, timing version (4 bytes), name of the Job or ''; under the
-- empty field what the set is complete for: the server's history and the definition. Beside it a
-- ZSET of the same fields in the order in which they are to be looked at: the number of the last
-- look that found the run active (0: none), GOING or DONE; under the empty member LOOKS_FROM and
-- the number of the last look. So each question reads a piece, however many runs there are. What
-- is not true any more is found out before anything is decided by it, and a set that is gone, or
-- whose two halves differ, is made again.
local LOOKS_FROM = 2 ^ 52

local function is_whole()
  return redis.call('HLEN', ACTIVE) == redis.call('ZCOUNT', LOOKS, '-inf', '+inf')
end

local function begin_set()
  redis.call('HSETNX', ACTIVE, '', '')
  redis.call('ZADD', LOOKS, 'NX', digits(LOOKS_FROM), '')
end

-- A look has a number: a run with that number or a later one was looked at since it began.
local function begin_look(known)
  begin_set()
  local last = tonumber(redis.call('ZSCORE', LOOKS, '')) - LOOKS_FROM
  if known == 0 or known > last then
    last = math.max(known, last + 1)
    redis.call('ZADD', LOOKS, digits(LOOKS_FROM + last), '')
  end
  return known == 0 and last or known
end

-- How many of these runs there were.
local function drop_runs(fields)
  if #fields == 0 then
    return 0
  end
  redis.call('ZREM', LOOKS, unpack(fields))
  return redis.call('HDEL', ACTIVE, unpack(fields))
end

-- Runs that a look has found to have ended: run, value pairs from ARGV.
local function record_ended(over)
  for i = over[1], over[2], 2 do
    if redis.call('HGET', ACTIVE, ARGV[i]) == ARGV[i + 1] then
      drop_runs({ ARGV[i] })
    end
  end
end

-- Jobs that a look has found and the set does not have (run, value pairs), and runs that it found active.
local function record_active(look, seen, verified)
  local fields, values, order = {}, {}, {}
  for i = seen[1], seen[2], 2 do
    fields[#fields + 1] = ARGV[i]
  end
  for i, known in ipairs(#fields > 0 and redis.call('HMGET', ACTIVE, unpack(fields)) or {}) do
    if not known then
      values[#values + 1], values[#values + 2] = fields[i], ARGV[seen[1] + 2 * i - 1]
      order[#order + 1], order[#order + 2] = 0, fields[i]
    end
  end
  if #values > 0 then
    begin_set()
    redis.call('HSET', ACTIVE, unpack(values))
    redis.call('ZADD', LOOKS, unpack(order))
  end
  local found = {}
  for i = verified[1], verified[2] do
    found[#found + 1], found[#found + 2] = digits(look), ARGV[i]
  end
  if #found > 0 then
    redis.call('ZADD', LOOKS, 'XX', 'GT', unpack(found))
  end
end
