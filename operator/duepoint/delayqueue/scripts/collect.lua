#!lua flags=allow-oom
--[[
  Blobs that no definition was found to use are marked with the time, and removed once they have
  been unused for `patience`. Whoever stores a definition takes the mark of its blob off (upsert,
  import), so a blob that came back into use while somebody looked is never removed.

  KEYS  1 meta  2 blobs
  ARGV  layout, epoch, patience (us), unused {from, to}, used {from, to}: digests
  Reply {marked, removed, marks taken off}
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta
-- include time

local META, BLOBS = KEYS[1], KEYS[2]
local refused = fenced_refusal(META)
if refused then
  return refused
end
local now = server_time()
local marked, removed, unmarked = 0, 0, 0
for i = args.unused[1], args.unused[2] do
  local blob, mark = ARGV[i], ':' .. ARGV[i]
  local since = tonumber(redis.call('HGET', BLOBS, mark) or '')
  if since and now - since >= args.patience then
    removed = removed + redis.call('HDEL', BLOBS, blob)
    redis.call('HDEL', BLOBS, mark)
  elseif not since and redis.call('HGET', BLOBS, blob) then
    redis.call('HSET', BLOBS, mark, string.format('%.0f', now))
    marked = marked + 1
  end
end
for i = args.used[1], args.used[2] do
  unmarked = unmarked + redis.call('HDEL', BLOBS, ':' .. ARGV[i])
end
return { marked, removed, unmarked }
