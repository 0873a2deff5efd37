-- A stream that is bounded by bytes is cut in steps of a 16th of its bound. The hash `state` counts the bytes as they
-- come in (field `in`), and `cuts` names the last entry of each of the last 16 steps; both after `prefix`.
local CUT_STEPS = 16

-- Counts an entry; returns the oldest entry to keep, nil while the stream is within its bound.
local function oldest_kept(state, prefix, entry, bytes, limit)
  local step, total = limit / CUT_STEPS, redis.call('HINCRBY', state, prefix .. 'in', bytes)
  local steps = math.floor(total / step) - math.floor((total - bytes) / step)
  if steps == 0 then
    return nil
  end
  local cuts = {}
  for cut in string.gmatch(redis.call('HGET', state, prefix .. 'cuts') or '', '%d+-%d+') do
    cuts[#cuts + 1] = cut
  end
  for _ = 1, math.min(steps, CUT_STEPS) do
    cuts[#cuts + 1] = entry
  end
  local first = #cuts - CUT_STEPS + 1
  redis.call('HSET', state, prefix .. 'cuts', table.concat(cuts, ' ', math.max(1, first)))
  return cuts[first]
end
