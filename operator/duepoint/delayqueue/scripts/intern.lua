#!lua
--[[
  Every text has one number in this shard, the same ever after; calling twice gives the same one. A number whose
  text is gone gets it back; one that stands for another text now is left to that.

  ARGV  layout, epoch, texts {from, to}: kind (n namespace, r rule, d target digest) and text
  Reply {incarnation, number of each text in order ...}
  Error OOM
]]
-- keys meta interned
-- include shard
-- include fenced
local reply = { meta[3] }
for i = args.texts[1], args.texts[2] do
  local text = ARGV[i]
  local number = tonumber(redis.call('HGET', INTERNED, 't:' .. text))
  if number then
    redis.call('HSETNX', INTERNED, 'n:' .. number, text) -- lost: a reader of that number finds it again
  end
  if not number or redis.call('HGET', INTERNED, 'n:' .. number) ~= text then
    number = redis.call('HINCRBY', INTERNED, 'next', 1)
    redis.call('HSET', INTERNED, 't:' .. text, number, 'n:' .. number, text)
  end
  reply[#reply + 1] = number
end
return reply
