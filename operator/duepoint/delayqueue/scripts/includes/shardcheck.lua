-- Checks that the shard is the one that the caller knows; else nothing happens: UNINIT (no meta, or one without its
-- fields: emptied, or never made), WRONGLAYOUT (another layout, or closed), FOREIGN (of another cluster than `owner`).
local meta, shard_state

-- Checks the shard with this meta key; returns the text of the error, or nil.
local function shard_trouble(key, layout, owner)
  meta = redis.call('HMGET', key, 'layout', 'state', 'incarnation', 'server', 'mark', 'back', 'owner', 'doubt')
  -- open; draining: the move to a new layout takes schedules from here
  shard_state = meta[2]
  if not tonumber(meta[1]) or not meta[3] then
    return 'UNINIT this shard holds no index'
  end
  if owner and meta[7] and owner ~= meta[7] then
    return 'FOREIGN the shard is of ' .. meta[7] .. ', not of ' .. owner
  end
  if tonumber(meta[1]) ~= layout or meta[2] == 'closed' then
    return 'WRONGLAYOUT the shard is of layout ' .. meta[1] .. ', ' .. meta[2]
  end
  return nil
end
