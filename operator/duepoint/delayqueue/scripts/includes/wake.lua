-- include heads
-- Wakes the sleepers when the shard's head came earlier by a millisecond or more.
-- Message: due and server time, so that a sleeper needs no agreement of clocks.
local function announce(due, now)
  redis.call('SPUBLISH', WAKE, string.format('%.0f %.0f', due, now))
end

local function announce_head(before, now)
  local due = shard_head()
  if due < math.huge and due <= before - 1000 then
    announce(due, now)
  end
end
