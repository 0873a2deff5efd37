-- The names of this shard's keys, as in delayqueue/keys.py: all begin like that of META.
local TAG = string.sub(META, 1, -#'meta' - 1)

local function lane_key(lane)
  return TAG .. 'points:' .. lane
end

-- Returns the bucket of the definition with this id, as one number; `buckets` is their number in each population.
local function bucket_of(id, buckets)
  local rest, low = struct.unpack('>I6I2', id)
  return math.floor(low / 4) * buckets + rest % buckets
end

local function bucket_key(bucket, buckets)
  return string.format('%sdefs:n%x:%.0f', TAG, math.floor(bucket / buckets), bucket % buckets)
end
