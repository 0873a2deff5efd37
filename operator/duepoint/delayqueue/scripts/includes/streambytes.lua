-- A user's stream keeps about so many bytes. They are counted in `state` as they come in (see cuts.lua).
local function bound_stream(stream, state, entry, added, limit)
  local step, total = limit / CUT_STEPS, redis.call('HINCRBY', state, 'in', added)
  local steps = math.floor(total / step) - math.floor((total - added) / step)
  local oldest = steps > 0 and note_cuts(state, 'cuts', entry, steps)
  if oldest then
    redis.call('XTRIM', stream, 'MINID', '~', oldest, 'LIMIT', 0)
  end
end
