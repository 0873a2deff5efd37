-- include heads
-- include time
-- Wakes sleeping workers if the shard's head is now earlier by a millisecond or more than `before`.
-- The message is due and server time, so that clocks need not agree.
local function announce(due)
  redis.call('SPUBLISH', WAKE, string.format('%.0f %.0f', due, server_time()))
end

local function announce_head(before)
  local due = shard_head()
  if due < math.huge and due <= before - 1000 then
    announce(due)
  end
end

-- Refreshes the head of a lane that has changed, and announces it.
local function announce_lane(lane, lane_key)
  local before = shard_head()
  refresh_head(lane, lane_key)
  announce_head(before)
end
