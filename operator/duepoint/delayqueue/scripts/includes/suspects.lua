-- include members
-- A server that went back holds an older state: what was due before may have run already. `meta`
-- says: `server` -> run id of the process whose state was vouched for last, `mark` -> a number that
-- each claim raises, `back` -> the shard is suspect: what was due until then (us) waits to be compared, `compared` ->
-- the members of slots that wait for others and were, one behind the other.
local OCCURRENCES = { [21] = true, [25] = true }
local MOST_APART = 5000000 -- microseconds; clocks that agree are no further apart

-- The latest that the true time may be.
local function latest_time(now, confirmed)
  if confirmed and math.abs(now - confirmed) > MOST_APART then
    return confirmed + MOST_APART
  end
  return math.max(now, confirmed or now)
end

-- Until when what was due waits; nil where nothing is suspect. `server` is the run id of the process
-- that this runs on, '' where it is not known; `mark` the highest that the caller has seen. After a
-- space in `server` stands for how long (us) the caller has known that process, where that is not
-- long; `mark_age` (us) is for how long it has known the mark. No claim was made elsewhere once this
-- process had answered as a primary: what became due since then cannot have run. `confirmed` (us) is the UTC
-- on which two of the caller's clocks agree: where this server's own is far from it, that one is wrong, and what has
-- run was due by `confirmed`. Without it (nil) the second value is true where a server went back, and nothing is
-- stored; unless the caller `insists`, and this server's clock is believed.
local function suspect_until(server, mark, mark_age, now, confirmed, insists)
  local stored_server, stored_mark, back = meta[4], tonumber(meta[5]) or 0, tonumber(meta[6])
  local met
  server, met = string.match(server, '^(%S*) ?(%d*)$')
  met = tonumber(met) or 0
  local has_changed = server ~= '' and stored_server ~= server
  local went_back = has_changed and stored_server or mark > stored_mark
  if went_back and not confirmed and not insists then
    return back, true
  end
  if has_changed then
    redis.call('HSET', META, 'server', server)
  end
  if went_back then
    -- A mark younger than that is of this very process: it went back with it.
    local known_for = met < mark_age and met or 0
    back = math.max(back or 0, latest_time(now, confirmed) - known_for)
    redis.call('HSET', META, 'mark', digits(math.max(mark, stored_mark)), 'back', digits(back))
    redis.call('HDEL', META, 'compared')
    redis.call('XADD', RUNS, '*', 'back', digits(back))
    redis.call('SPUBLISH', args.ran, '')
  end
  return back
end

local function was_compared(member)
  return string.find(redis.call('HGET', META, 'compared') or '', member, 1, true) ~= nil
end

-- A chain goes on, by any worker that claims it; a check does no harm when it is made twice. A slot that waits for
-- others may have been called up before its due, so its due does not say whether it was compared.
local function must_wait(member, due, back)
  if not OCCURRENCES[#member] or string.byte(member, KIND_POSITION) == CHECK then
    return false
  end
  local is_queued = string.byte(member, KIND_POSITION) == QUEUED
  return due <= back or is_queued and slot_of(member) <= back and not was_compared(member)
end
