-- Fencing for maintenance: FENCED if a newer leader than that of term `epoch` has been here.
local function fence_trouble(key, epoch)
  local newest = tonumber(redis.call('HGET', key, 'epoch')) or 0
  if epoch < newest then
    return 'FENCED term ' .. epoch .. ' is older than ' .. newest
  end
  if epoch > newest then
    redis.call('HSET', key, 'epoch', epoch)
  end
  return nil
end
local fenced = args.epoch and fence_trouble(KEYS[1], args.epoch)
if fenced then
  return redis.error_reply(fenced)
end
