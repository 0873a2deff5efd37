-- include heads
-- include occurrences
-- include definition
-- A member of a set that has come to its end leaves the queue: at once, or when it was kept as long as its set says
-- (behind the colon of s<lane>), by an occurrence of the kind `expiry`. As long as one of its slots is open it stays.
local EXPIRY, EXPIRED, DEAD = 8, 1, 2
local DEAD_KEPT = 604800 -- seconds that a member stays whose slot may be replayed

local function leave(bucket, schedule, lane, lane_key, why, now)
  local record = redis.call('HGET', bucket, schedule)
  if not record or state_of(record) ~= COMPLETED or #occurrences_of(schedule, 1) > 0 then
    return
  end
  local kept = tonumber(string.match(redis.call('HGET', META, 's' .. lane) or '', ':(%d+)$')) or 0
  if why == DEAD then
    kept = math.max(kept, DEAD_KEPT)
  end
  if kept == 0 or why == EXPIRED then
    if redis.call('HDEL', bucket, schedule) == 1 then
      redis.call('HINCRBY', META, 'c' .. lane, -1)
    end
    return
  end
  local due = now + kept * 1000000
  local member = schedule .. version_of(record) .. string.char(EXPIRY) .. struct.pack('>I8', due)
  add_occurrence(lane_key, digits(due), member, '')
  refresh_head(lane, lane_key)
end
