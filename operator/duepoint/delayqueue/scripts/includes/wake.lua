-- include heads
-- Wakes sleeping workers if the shard's head is now earlier by a millisecond or more.
-- The message is due and server time, so that clocks need not agree.
local function announce(due, now)
  redis.call('SPUBLISH', WAKE, string.format('%.0f %.0f', due, now))
end

local function announce_head(before, now)
  local due = shard_head()
  if due < math.huge and due <= before - 1000 then
    announce(due, now)
  end
end
