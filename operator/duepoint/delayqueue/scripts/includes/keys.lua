-- The names of this shard's keys as delayqueue/keys.py makes them: all begin as that of META does.
local TAG = string.sub(META, 1, -#'meta' - 1)

local function lane_key(lane)
  return TAG .. 'points:' .. lane
end

-- The bucket of the definition with this id, where each population has so many.
local function bucket_key(id, buckets)
  local rest, low = struct.unpack('>I6I2', id)
  return string.format('%sdefs:n%x:%.0f', TAG, math.floor(low / 4), rest % buckets)
end
