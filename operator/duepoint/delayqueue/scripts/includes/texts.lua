-- Values that are called after their content (`blobs`, `texts`): {from, to} of digest, value pairs in ARGV. They are there,
-- and not marked as unused any more (collect.lua).
local function store_texts(key, listed)
  for i = listed[1], listed[2], 2 do
    if redis.call('HSETNX', key, ARGV[i], ARGV[i + 1]) == 0 then
      redis.call('HDEL', key, ':' .. ARGV[i])
    end
  end
end
