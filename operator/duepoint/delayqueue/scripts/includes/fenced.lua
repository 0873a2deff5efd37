-- For maintenance: FENCED where a newer leader has been here than the one of term `epoch`.
local newest = tonumber(redis.call('HGET', KEYS[1], 'epoch')) or 0
if args.epoch < newest then
  return redis.error_reply('FENCED term ' .. args.epoch .. ' is older than ' .. newest)
end
if args.epoch > newest then
  redis.call('HSET', KEYS[1], 'epoch', args.epoch)
end
