-- include heads
-- include occurrences
-- include definition
-- include ended
-- Members of a set that have ended leave the queue: at once, or by an occurrence of the kind `expiry` after the
-- retention of their set (behind the colon of its entry). While one of its slots is open, a
-- member stays.
local EXPIRY, EXPIRED, DEAD = 7, 1, 2
local DEAD_KEPT = 604800 -- seconds that a member stays whose slot may be replayed
local ENDED_KEPT, MOST_ENDED, VALUES_TOGETHER = 60000000, 8000, 6000

local function kept_seconds(lane, why)
  local kept = tonumber(string.match(redis.call('HGET', META, lane) or '', ':(%d+)$')) or 0
  return why == DEAD and math.max(kept, DEAD_KEPT) or kept
end

-- Lets members leave: `ids` of one bucket; `chains`, if given, are the members' last ones, which end now. Adds the
-- members that leave to `left`, in the form of `remember_ended`.
local function leave(bucket, ids, chains, lane, lane_key, why, now, left)
  if #ids == 0 then
    return
  end
  local kept = kept_seconds(lane, why)
  local is_any_open = redis.call('ZLEXCOUNT', OCC, '-', '+') > 0
  local expires = now + kept * 1000000
  local gone, completed, is_any_kept = {}, {}, false
  for i, record in ipairs(redis.call('HMGET', bucket, unpack(ids))) do
    local id = ids[i]
    local ends = chains and is_armed_as(record, id, chains[i])
    if ends or (record and state_of(record) == COMPLETED) then
      local is_open = is_any_open and #occurrences_of(id, 1) > 0
      if not is_open and (kept == 0 or why == EXPIRED) then
        gone[#gone + 1] = id
        left[#left + 1], left[#left + 2] = id, record
      else
        if ends then
          completed[#completed + 1], completed[#completed + 2] = id, with_state(record, COMPLETED)
        end
        if not is_open then
          local member = id .. version_of(record) .. string.char(EXPIRY) .. struct.pack('>I8', expires)
          is_any_kept = add_occurrence(lane_key, digits(expires), member, '') or is_any_kept
        end
      end
    end
  end
  if #completed > 0 then
    redis.call('HSET', bucket, unpack(completed))
  end
  if is_any_kept then
    refresh_head(lane, lane_key)
  end
  if #gone > 0 then
    redis.call('HINCRBY', META, 'c' .. lane, -redis.call('HDEL', bucket, unpack(gone)))
  end
end

-- Notes ended one-offs; `listed`: id, record, id, record ...
local function remember_ended(listed, now)
  local values, count = {}, 0
  for i = 1, #listed, 2 do
    local known = one_off(listed[i], listed[i + 1])
    if known then
      values[count + 1], values[count + 2], count = digits(now), known, count + 2
    end
  end
  if count == 0 then
    return
  end
  for first = 1, count, VALUES_TOGETHER do
    redis.call('ZADD', ENDED, unpack(values, first, math.min(first + VALUES_TOGETHER - 1, count)))
  end
  local oldest = redis.call('ZRANGE', ENDED, -MOST_ENDED, -MOST_ENDED, 'WITHSCORES')[2]
  redis.call('ZREMRANGEBYSCORE', ENDED, '-inf', '(' .. digits(math.max(now - ENDED_KEPT, tonumber(oldest or 0))))
end
