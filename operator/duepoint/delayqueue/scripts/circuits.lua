#!lua flags=allow-oom
--[[
  Workers report how receivers behave and may get to probe one; all of what is known goes back to a worker that
  does not know it yet. `circuits.py` explains the rules. A field of
  `circuits` is a receiver ('h' and its name), a Schedule whose receiver is gone ('g' and its uid) or the
  version of all ('v').

  ARGV  known (version), most (fields, beyond which no new one is kept),
        rule {most_in_a_row, least_calls, window, first_wait, most_wait, forget, gone} (times in us),
        buckets (count), gone {{field, generation} ...} (position, 0 = not gone any more),
        news {{field, {runs of calls}, probe, ask, cause} ...} (position, text)
  Reply {version, server time us, {probe given or '0' ...}, {field, value ...} or nothing}
]]
-- keys circuits troubled
-- include time
local args = cmsgpack.unpack(ARGV[1])
local rule, buckets_wanted = args.rule, args.buckets
local now, is_changed = server_time(), false
-- Positions in a stored circuit, as in `circuits.Circuit`.
local OPEN, IN_A_ROW, UNTIL, WAIT, PROBE, BUCKETS, CAUSE = 1, 2, 3, 4, 5, 7, 8 -- 6: since when it is open

local MOST_HELD = 600000000 -- microseconds; an attempt is over long before

local function forget(field)
  if redis.call('HDEL', CIRCUITS, field) == 1 then
    is_changed = true
  end
  redis.call('ZREM', TROUBLED, field)
end

local function keep(field, value, how_long)
  redis.call('HSET', CIRCUITS, field, cmsgpack.pack(value))
  redis.call('ZADD', TROUBLED, string.format('%.0f', now + how_long), field)
end

local function has_room(known)
  return known or redis.call('HLEN', CIRCUITS) < args.most
end

local function too_much(buckets, in_a_row)
  local failed, calls = 0, 0
  for _, bucket in ipairs(buckets) do
    failed, calls = failed + bucket[3], calls + bucket[2] + bucket[3]
  end
  return in_a_row >= rule.most_in_a_row or (calls >= rule.least_calls and 2 * failed > calls)
end

-- A server's clock that was ahead has written times to come: no wait is longer than it was made for.
local function as_of_this_clock(circuit)
  if circuit[UNTIL] > now + circuit[WAIT] then
    circuit[UNTIL] = now
  end
  if circuit[PROBE] > now + MOST_HELD then
    circuit[PROBE] = 0
  end
  return circuit
end

local function recent_buckets(circuit)
  local number = math.floor(now * buckets_wanted / rule.window)
  local recent = {}
  for _, bucket in ipairs(circuit[BUCKETS]) do
    if bucket[1] > number - buckets_wanted and bucket[1] <= number then
      recent[#recent + 1] = bucket
    end
  end
  if #recent == 0 or recent[#recent][1] < number then
    recent[#recent + 1] = { number, 0, 0 }
  end
  return recent
end

local function after_calls(circuit, calls, cause)
  local buckets, in_a_row, any_failed = recent_buckets(circuit), circuit[IN_A_ROW], false
  local last = buckets[#buckets]
  for _, run in ipairs(calls) do
    last[2], last[3] = last[2] + math.max(run, 0), last[3] + math.max(-run, 0)
    in_a_row = run < 0 and in_a_row - run or 0
    if run < 0 and too_much(buckets, in_a_row) then
      return { true, in_a_row, now + rule.first_wait, rule.first_wait, 0, now, {}, cause }
    end
  end
  for _, bucket in ipairs(buckets) do
    any_failed = any_failed or bucket[3] > 0
  end
  if in_a_row == 0 and not any_failed then
    return nil
  end
  return { false, in_a_row, 0, 0, 0, 0, buckets, cause }
end

local function after(circuit, calls, probe, cause)
  if not circuit[OPEN] then
    return after_calls(circuit, calls, cause)
  end
  if probe == 0 or probe ~= circuit[PROBE] then
    return circuit
  end
  circuit[PROBE] = 0
  if #calls == 0 then
    return circuit
  end
  if calls[#calls] > 0 then
    return nil
  end
  circuit[WAIT] = math.min(2 * circuit[WAIT], rule.most_wait)
  circuit[UNTIL] = now + circuit[WAIT]
  circuit[CAUSE] = cause
  return circuit
end

local function apply(news)
  local field, calls, probe, ask = ARGV[news[1]], news[2], news[3], news[4]
  local stored = redis.call('HGET', CIRCUITS, field)
  local was_open, was_until, given = false, 0, 0
  local circuit = { false, 0, 0, 0, 0, 0, {}, '' }
  if stored then
    circuit = as_of_this_clock(cmsgpack.unpack(stored))
    was_open, was_until = circuit[OPEN], circuit[UNTIL]
  end
  local cause = news[5] ~= '' and news[5] or circuit[CAUSE] -- what the newest failure was
  circuit = after(circuit, calls, probe, cause)
  if circuit and ask > 0 and circuit[OPEN]
    and now >= math.max(circuit[UNTIL], circuit[PROBE]) then
    given = now + ask
    circuit[PROBE] = given
  end
  if not circuit then
    forget(field)
  elseif has_room(stored) then
    keep(field, circuit, rule.forget)
    is_changed = is_changed or not stored or was_open ~= circuit[OPEN]
      or was_until ~= circuit[UNTIL]
  end
  return string.format('%.0f', given)
end

for _, field in ipairs(redis.call('ZRANGE', TROUBLED, '-inf', now, 'BYSCORE', 'LIMIT', 0, 20)) do
  forget(field)
end
for _, gone in ipairs(args.gone) do
  local field = ARGV[gone[1]]
  if gone[2] == 0 then
    forget(field)
  elseif has_room(redis.call('HEXISTS', CIRCUITS, field) == 1) then
    keep(field, gone[2], rule.gone)
    is_changed = true
  end
end
local given = {}
for i, news in ipairs(args.news) do
  given[i] = apply(news)
end
-- By the time, so that an emptied server never comes to a version that a worker has seen.
local version = tonumber(redis.call('HGET', CIRCUITS, 'v') or '0')
if is_changed then
  version = math.max(version + 1, now)
  redis.call('HSET', CIRCUITS, 'v', string.format('%.0f', version))
end
local all = version ~= args.known and redis.call('HGETALL', CIRCUITS) or {}
return { string.format('%.0f', version), string.format('%.0f', now), given, all }
