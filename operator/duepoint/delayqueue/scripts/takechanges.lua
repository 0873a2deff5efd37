#!lua flags=allow-oom
--[[
  A process of the API takes a part of the changes that a set or namespace may see in this second.

  KEYS  what was taken in the current second: its number and how many
  ARGV  wanted, most (a second)
  Reply {granted, microseconds until the next second}
]]
-- include time
local args = cmsgpack.unpack(ARGV[1])
local now = server_time()
local second = math.floor(now / 1000000)
local known = redis.call('HMGET', KEYS[1], 's', 'n')
local taken = tonumber(known[1] or 0) == second and tonumber(known[2]) or 0
local granted = math.max(0, math.min(args.wanted, args.most - taken))
if granted > 0 then
  redis.call('HSET', KEYS[1], 's', second, 'n', taken + granted)
  redis.call('EXPIRE', KEYS[1], 5)
end
return { granted, (second + 1) * 1000000 - now }
