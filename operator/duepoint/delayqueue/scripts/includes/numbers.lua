-- What a stored definition names is in use, so the numbers of its texts lose their marks (see `collect`). The error where
-- one of them stands for no text any more, else nil. Nothing may have been written before.
local function use_numbers(numbers)
  if #numbers == 0 then
    return nil
  end
  local texts, marks = {}, {}
  for i, number in ipairs(numbers) do
    texts[i], marks[i] = 'n:' .. number, 'm:' .. number
  end
  for _, text in ipairs(redis.call('HMGET', INTERNED, unpack(texts))) do
    if not text then
      return redis.error_reply('WRONGLAYOUT what a number stood for is gone: ask for it again')
    end
  end
  redis.call('HDEL', INTERNED, unpack(marks))
  return nil
end
