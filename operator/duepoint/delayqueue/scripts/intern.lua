#!lua
--[[
  Every text has one number in this shard, the same ever after; asking twice gives the same one. A number
  whose text is gone gets it back; one that stands for another text now is left to that.

  KEYS  1 meta  2 interned
  ARGV  layout, epoch, texts {from, to}: kind (n namespace, r rule, d target digest) and text
  Reply {incarnation, number of each text in order ...}
  Error UNINIT, WRONGLAYOUT, FENCED, OOM
]]
-- include meta

local META, INTERNED = KEYS[1], KEYS[2]
local refused = fenced_refusal(META)
if refused then
  return refused
end
local reply = { redis.call('HGET', META, 'incarnation') }
for i = args.texts[1], args.texts[2] do
  local text = ARGV[i]
  local number = tonumber(redis.call('HGET', INTERNED, 't:' .. text))
  if number then
    redis.call('HSETNX', INTERNED, 'n:' .. number, text) -- lost: who names it reads it again
  end
  if not number or redis.call('HGET', INTERNED, 'n:' .. number) ~= text then
    number = redis.call('HINCRBY', INTERNED, 'next', 1)
    redis.call('HSET', INTERNED, 't:' .. text, number, 'n:' .. number, text)
  end
  reply[#reply + 1] = number
end
return reply
