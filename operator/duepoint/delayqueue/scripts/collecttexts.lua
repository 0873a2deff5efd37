#!lua flags=allow-oom
--[[
  Interned texts that no definition was found to use are marked with the time, and removed once they
  have been unused for `patience`. Whoever stores a definition takes the marks of what it names off
  and is refused where that is gone (upsert), so nothing that is in use is ever removed.

  KEYS  1 meta  2 interned
  ARGV  layout, epoch, patience (us), unused {number ...}, used {number ...}
  Reply {marked, removed}
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta
-- include time

local META, INTERNED = KEYS[1], KEYS[2]
local refused = fenced_refusal(META)
if refused then
  return refused
end
local now = server_time()
local marked, removed = 0, 0
for _, number in ipairs(args.unused) do
  local name, mark = 'n:' .. number, 'm:' .. number
  local text, since = unpack(redis.call('HMGET', INTERNED, name, mark))
  if text and since and now - tonumber(since) >= args.patience then
    redis.call('HDEL', INTERNED, name, mark, 't:' .. text)
    removed = removed + 1
  elseif text and not since then
    redis.call('HSET', INTERNED, mark, string.format('%.0f', now))
    marked = marked + 1
  end
end
for _, number in ipairs(args.used) do
  redis.call('HDEL', INTERNED, 'm:' .. number)
end
return { marked, removed }
