-- A user's stream keeps about so many bytes. They are counted in `state` as they come in, in steps of a 16th: `cuts`
-- names the last entry of each of the last 16 steps, and what is older than the first of those goes.
local STREAM_STEPS = 16

local function bound_stream(stream, state, entry, added, limit)
  local step, total = limit / STREAM_STEPS, redis.call('HINCRBY', state, 'in', added)
  local steps = math.floor(total / step) - math.floor((total - added) / step)
  if steps == 0 then
    return
  end
  local cuts = {}
  for cut in string.gmatch(redis.call('HGET', state, 'cuts') or '', '%d+-%d+') do
    cuts[#cuts + 1] = cut
  end
  for _ = 1, math.min(steps, STREAM_STEPS) do
    cuts[#cuts + 1] = entry
  end
  local first = #cuts - STREAM_STEPS + 1
  redis.call('HSET', state, 'cuts', table.concat(cuts, ' ', math.max(1, first)))
  if first > 0 then
    redis.call('XTRIM', stream, 'MINID', '~', cuts[first], 'LIMIT', 0)
  end
end
