-- After `layout`: UNINIT where there is no index.
if redis.call('HEXISTS', LAYOUT, 'layout') == 0 then
  return redis.error_reply('UNINIT there is no index yet')
end
