-- Refuses to touch a shard that is not the one the caller knows.
-- Errors: UNINIT (no meta, or one that says nothing: emptied, or never made), WRONGLAYOUT (other layout, closed, or made
-- anew since the caller read its numbers), FENCED (a newer leader has been here), FOREIGN (of another cluster than the
-- one in `owner`, where the caller says that).

-- The arguments by name: ARGV[1] is a MessagePack map of numbers and text. Binary values stand in
-- ARGV from 2 on; the map refers to them by position, so that runs of them go to native commands
-- by unpack() without a loop.
local args = cmsgpack.unpack(ARGV[1])

-- open; filling: the move to a new layout brings schedules here; draining: it takes them from here
local shard_state
-- server (run id), mark (number of claims), back (us, or nothing): see `doubt`
local shard_history

local function is_meta(layout, incarnation)
  return tonumber(layout) ~= nil and incarnation
end

local function refusal(meta_key)
  local meta = redis.call('HMGET', meta_key, 'layout', 'state', 'incarnation', 'server', 'mark', 'back', 'owner')
  if not is_meta(meta[1], meta[3]) then
    return redis.error_reply('UNINIT this shard holds no index')
  end
  if args.owner and meta[7] and args.owner ~= meta[7] then
    return redis.error_reply('FOREIGN the shard is of ' .. meta[7] .. ', not of ' .. args.owner)
  end
  if tonumber(meta[1]) ~= args.layout or meta[2] == 'closed' then
    return redis.error_reply('WRONGLAYOUT the shard is of layout ' .. meta[1] .. ', ' .. meta[2])
  end
  if args.incarnation and args.incarnation ~= meta[3] then
    return redis.error_reply('WRONGLAYOUT the index was made anew as ' .. meta[3])
  end
  shard_state = meta[2]
  shard_history = { server = meta[4], mark = tonumber(meta[5]) or 0, back = tonumber(meta[6]) }
  return nil
end

-- For maintenance: also refuses a term older than the newest one seen, and remembers a newer one.
local function fenced_refusal(meta_key)
  local refused = refusal(meta_key)
  if refused then
    return refused
  end
  local newest = tonumber(redis.call('HGET', meta_key, 'epoch')) or 0
  if args.epoch < newest then
    return redis.error_reply('FENCED term ' .. args.epoch .. ' is older than ' .. newest)
  end
  if args.epoch > newest then
    redis.call('HSET', meta_key, 'epoch', args.epoch)
  end
  return nil
end
