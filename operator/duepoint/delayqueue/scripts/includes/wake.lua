-- include heads
-- Wakes the sleepers when the shard's head came earlier by a millisecond or more.
-- Message: due, lane, server time, so that a sleeper needs no agreement of clocks; and, where it is
-- known whose point that is, its schedule in hex, whose definition will be needed.
local function announce_head(before, now, schedule, schedule_due)
  local due, lane = shard_head()
  if due < math.huge and due <= before - 1000 then
    local whose = ''
    if schedule and schedule_due == due then
      whose = ' ' .. string.gsub(schedule, '.', function(byte)
        return string.format('%02x', string.byte(byte))
      end)
    end
    redis.call('SPUBLISH', WAKE, string.format('%.0f %s %.0f%s', due, lane, now, whose))
  end
end
