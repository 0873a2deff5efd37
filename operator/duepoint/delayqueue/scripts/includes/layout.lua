-- The layout record: which layout the index has and, while it is cut anew, which one it had.

local function older_term(layout, epoch)
  local newest = redis.call('HGET', layout, 'epoch')
  if not newest then
    return redis.error_reply('UNINIT there is no index yet')
  end
  newest = tonumber(newest) or 0
  if epoch < newest then
    return redis.error_reply('FENCED term ' .. epoch .. ' is older than ' .. newest)
  end
  if epoch > newest then
    redis.call('HSET', layout, 'epoch', epoch)
  end
  return nil
end

local function layout_record(layout)
  return redis.call('HMGET', layout, 'layout', 'shards', 'buckets', 'incarnation', 'former',
    'former_shards')
end
