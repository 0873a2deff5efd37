-- Texts that definitions name by number: `n:<number>` -> text, `t:<text>` -> number; `m:<number>` ->
-- since when nobody was seen to use it (us). Numbers are never given twice.

-- Whether each of these still stands for a text; who stores a definition takes their marks off.
local function take_into_use(interned, numbers)
  local names, marks = {}, {}
  for i, number in ipairs(numbers) do
    names[i], marks[i] = 'n:' .. number, 'm:' .. number
  end
  for _, text in ipairs(redis.call('HMGET', interned, unpack(names))) do
    if not text then
      return false
    end
  end
  redis.call('HDEL', interned, unpack(marks))
  return true
end

local function was_collected()
  return redis.error_reply('WRONGLAYOUT what a number stood for is gone: ask for it again')
end
