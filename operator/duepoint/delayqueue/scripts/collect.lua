#!lua flags=allow-oom
--[[
  Values of a hash (blobs, interned texts) that no definition was found to use are marked with the time, and
  removed once they have been unused for `patience`. A script that stores a definition takes the marks of what
  it names off (put, arrive), and put is refused where a text is gone: what is in use again is never
  removed.

  ARGV  layout, epoch, patience (us), name, mark (what the fields of a value and of its mark begin with), twin (the
        same of a field that is called after the value and goes with it; absent: there is none),
        unused {from, to}, used {from, to}: digests or numbers
  Reply {marked, removed}
]]
-- keys meta values
-- include shard
-- include fenced
-- include time
local now, marked, removed = server_time(), 0, 0
for i = args.unused[1], args.unused[2] do
  local name, mark = args.name .. ARGV[i], args.mark .. ARGV[i]
  local value, since = unpack(redis.call('HMGET', VALUES, name, mark))
  if value and since and now - tonumber(since) >= args.patience then
    redis.call('HDEL', VALUES, name, mark)
    if args.twin then
      redis.call('HDEL', VALUES, args.twin .. value)
    end
    removed = removed + 1
  elseif value and not since then
    redis.call('HSET', VALUES, mark, digits(now))
    marked = marked + 1
  end
end
for i = args.used[1], args.used[2] do
  redis.call('HDEL', VALUES, args.mark .. ARGV[i])
end
return { marked, removed }
