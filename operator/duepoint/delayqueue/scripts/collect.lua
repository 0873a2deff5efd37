#!lua flags=allow-oom
--[[
  Mark values of a hash (`blobs`, `texts`) that no definition uses with the time, and remove those that have been
  unused for `patience`. A script that stores a definition also stores the values that it names and takes their marks
  off (put): a value that is in use again is never removed.

  KEYS  then values
  ARGV  layout, epoch, patience (us), unused {from, to}: digests
  Reply {marked, removed}
]]
-- keys meta values
-- include shard
-- include fenced
-- include time
local now, marked, removed = server_time(), 0, 0
for i = args.unused[1], args.unused[2] do
  local digest = ARGV[i]
  local value, since = unpack(redis.call('HMGET', VALUES, digest, ':' .. digest))
  if value and since and now - tonumber(since) >= args.patience then
    redis.call('HDEL', VALUES, digest, ':' .. digest)
    removed = removed + 1
  elseif value and not since then
    redis.call('HSET', VALUES, ':' .. digest, digits(now))
    marked = marked + 1
  end
end
return { marked, removed }
