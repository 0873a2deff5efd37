-- A stream that is bounded by bytes is cut in steps of a 16th of its bound: field `field` of the hash `state` names
-- the last entry of each of the last 16 steps. `note_cuts` adds `entry`, which ended so many steps, and returns the
-- entry before which everything goes; nil while the stream is within its bound.
local CUT_STEPS = 16

local function note_cuts(state, field, entry, steps)
  local cuts = {}
  for cut in string.gmatch(redis.call('HGET', state, field) or '', '%d+-%d+') do
    cuts[#cuts + 1] = cut
  end
  for _ = 1, math.min(steps, CUT_STEPS) do
    cuts[#cuts + 1] = entry
  end
  local first = #cuts - CUT_STEPS + 1
  redis.call('HSET', state, field, table.concat(cuts, ' ', math.max(1, first)))
  return cuts[first]
end
