#!lua
--[[
  Arm definitions whose chain is missing, or belongs to a claim that does not exist. Chains that are right by now stay.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, chains {{lane, lane key, bucket key, id, chain, due}}
  Reply armed
  Error OOM
]]
-- keys meta heads claims wake
-- include shard
-- include fenced
-- include wake
-- include definition

-- Whether the chain waits, or belongs to a claim.
local function placed(score)
  local token = score and tonumber(score) - CLAIMED
  return token and (token < 0 or redis.call('ZCOUNT', CLAIMS, digits(token), digits(token)) > 0)
end

if shard_state == 'draining' then
  return 0 -- the chains of moving definitions are missing here, and not lost
end
local armed = 0
for _, lost in ipairs(args.chains) do
  local lane, lane_key, id, chain = lost[1], KEYS[lost[2]], ARGV[lost[4]], ARGV[lost[5]]
  if
    not placed(redis.call('ZSCORE', lane_key, chain)) and is_armed_as(redis.call('HGET', KEYS[lost[3]], id), id, chain)
  then
    redis.call('ZADD', lane_key, lost[6], chain)
    announce_lane(lane, lane_key)
    armed = armed + 1
  end
end
return armed
