-- What a stored definition names is in use, so the numbers of its texts lose their marks (see `collect`). The text of the
-- error where one of them stands for no text any more, else nil. Nothing may have been written before.
local function use_numbers(numbers)
  if #numbers == 0 then
    return nil
  end
  local wanted, count, marks = {}, #numbers, {}
  for i, number in ipairs(numbers) do
    wanted[i], wanted[count + i] = 'n:' .. number, 'm:' .. number
  end
  local found = redis.call('HMGET', INTERNED, unpack(wanted))
  for i = 1, count do
    if not found[i] then
      return 'WRONGLAYOUT what a number stood for is gone: ask for it again'
    end
    if found[count + i] then -- hardly ever: the collector marks what it has found nothing to use
      marks[#marks + 1] = wanted[count + i]
    end
  end
  if #marks > 0 then
    redis.call('HDEL', INTERNED, unpack(marks))
  end
  return nil
end
