#!lua flags=allow-oom
--[[
  The claim's lease ends `lease` from now, if that is later than before; asking twice is harmless. One
  that ends later than any can was written before the server's clock was put back, and is put back, too.

  KEYS  1 meta  2 claims  3... lanes of the claim
  ARGV  layout, lease (us), latest (us after now that no lease can end), id (position)
  Reply {'lost'} | {'extended', token us, server time us}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include claims

local META, CLAIMS = KEYS[1], KEYS[2]
local refused = refusal(META)
if refused then
  return refused
end
local id, now = ARGV[args.id], server_time()
local old = tonumber(redis.call('ZSCORE', CLAIMS, id) or 'nil')
if not old then
  return { 'lost' }
end
local token = old
if now + args.lease > old or old > now + args.latest then
  token = free_token(CLAIMS, now + args.lease)
  for i = 3, #KEYS do
    local held = redis.call('ZRANGE', KEYS[i], CLAIMED + old, CLAIMED + old, 'BYSCORE')
    if #held > 0 then
      rescore_members(KEYS[i], held, CLAIMED + token)
    end
  end
  redis.call('ZADD', CLAIMS, 'XX', token, id)
end
return { 'extended', string.format('%.0f', token), string.format('%.0f', now) }
