-- Blobs are there, and not marked as unused any more: {from, to} of digest, blob pairs in ARGV.
local function store_blobs(blobs)
  for i = blobs[1], blobs[2], 2 do
    if redis.call('HSETNX', BLOBS, ARGV[i], ARGV[i + 1]) == 0 then
      redis.call('HDEL', BLOBS, ':' .. ARGV[i])
    end
  end
end
