-- A server that went back holds an older state: what was due before may have run already. `meta`
-- tells: `server` -> run id of the process whose state was vouched for last, `mark` -> a number that
-- each claim raises, `back` -> the shard is in doubt: what was due until then (us) waits to be compared.

local CHECK, QUEUED_KIND = 6, 3
local OCCURRENCES = { [21] = true, [25] = true }

-- Until when what was due waits; nil where nothing is in doubt. `server` is the run id of the process
-- that this runs on, '' where it is not known; `mark` the highest that the caller has seen. After a
-- space in `server` stands for how long (us) the caller has known that process, where that is not
-- long; `mark_age` (us) is for how long it has known the mark. No claim was made elsewhere once this
-- process had answered as a primary: what became due since then can have been run by nobody.
local function doubted_until(meta, runs, ran, server, mark, mark_age, now)
  local known = shard_history
  local met
  server, met = string.match(server, '^(%S*) ?(%d*)$')
  met = tonumber(met) or 0
  local has_changed = server ~= '' and known.server ~= server
  if has_changed then
    redis.call('HSET', meta, 'server', server)
  end
  if (has_changed and known.server) or mark > known.mark then
    known.mark = math.max(mark, known.mark)
    -- A mark younger than that is of this very process: it went back with it.
    local since = met < mark_age and now - met or now
    known.back = math.max(known.back or 0, since)
    redis.call('HSET', meta, 'mark', string.format('%.0f', known.mark), 'back',
      string.format('%.0f', known.back))
    redis.call('XADD', runs, '*', 'back', string.format('%.0f', known.back))
    redis.call('SPUBLISH', ran, '')
  end
  return known.back
end

-- A chain goes on, by whoever claims it; a check does no harm when it is made twice. A slot that waits for
-- others may have been called up before its due.
local function must_wait(member, due, back)
  if not OCCURRENCES[#member] or string.byte(member, 13) == CHECK then
    return false
  end
  if due <= back then
    return true
  end
  return string.byte(member, 13) == QUEUED_KIND
    and struct.unpack('>I8', string.sub(member, 14, 21)) <= back
end
