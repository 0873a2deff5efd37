-- Stores values named by their content (`blobs`, `texts`): {from, to} of digest, value pairs in ARGV. Takes off the marks
-- of unused ones (collect.lua).
local function store_texts(key, listed)
  for i = listed[1], listed[2], 2 do
    if redis.call('HSETNX', key, ARGV[i], ARGV[i + 1]) == 0 then
      redis.call('HDEL', key, ':' .. ARGV[i])
    end
  end
end
