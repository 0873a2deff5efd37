#!lua
--[[
  Every text has one number in this shard, the same ever after; asking twice gives the same one.

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
  local number = redis.call('HGET', INTERNED, 't:' .. text)
  if not number then
    number = redis.call('HINCRBY', INTERNED, 'next', 1)
    redis.call('HSET', INTERNED, 't:' .. text, number, 'n:' .. number, text)
  end
  reply[#reply + 1] = tonumber(number)
end
return reply
