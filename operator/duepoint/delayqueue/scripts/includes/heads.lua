-- `heads` holds for each lane the earliest unclaimed due; whoever touches a lane refreshes it.
-- Its sentinel (empty member, score +inf) keeps the key alive and sorts last.

local CLAIMED = 4503599627370496 -- 2^52: scores from here on are lease expiries, not dues

local function shard_head(heads)
  local first = redis.call('ZRANGE', heads, 0, 0, 'WITHSCORES')
  if not first[1] or first[1] == '' then
    return math.huge, ''
  end
  return tonumber(first[2]), first[1]
end

local function refresh_head(heads, lane, lane_key)
  local first = redis.call('ZRANGE', lane_key, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) < CLAIMED then
    redis.call('ZADD', heads, first[2], lane)
  else
    redis.call('ZREM', heads, lane)
  end
end

-- Wakes the sleepers when the shard's head came earlier by a millisecond or more.
-- Message: due, lane, server time, so that a sleeper needs no agreement of clocks; and, where it is
-- known whose point that is, its schedule in hex, whose definition will be needed.
local function announce_head(heads, before, channel, now, schedule, schedule_due)
  local due, lane = shard_head(heads)
  if due < math.huge and due <= before - 1000 then
    local whose = ''
    if schedule and schedule_due == due then
      whose = ' ' .. string.gsub(schedule, '.', function(byte)
        return string.format('%02x', string.byte(byte))
      end)
    end
    redis.call('SPUBLISH', channel, string.format('%.0f %s %.0f%s', due, lane, now, whose))
  end
end
