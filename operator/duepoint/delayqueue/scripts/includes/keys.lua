-- The names of this shard's keys, as in delayqueue/keys.py: all begin like that of META.
local TAG = string.sub(META, 1, -#'meta' - 1)

local function lane_key(lane)
  return TAG .. 'points:' .. lane
end

-- Returns the bucket of the definition with this id, as one number; `buckets` is their number in each population.
local function bucket_of(id, buckets)
  local first, second, third, _, _, _, high, low = string.byte(id, 1, 8)
  return math.floor((high * 256 + low) / 4) * buckets
    + math.floor((first * 65536 + second * 256 + third) * buckets / 16777216)
end

local function bucket_key(bucket, buckets)
  return string.format('%sdefs:n%x:%.0f', TAG, math.floor(bucket / buckets), bucket % buckets)
end
