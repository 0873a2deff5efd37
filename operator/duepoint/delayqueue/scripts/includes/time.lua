-- The server's UTC in microseconds; read once per script.
local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- A whole number as text: microseconds have 16 digits, and tostring() keeps 14.
local function digits(number)
  return string.format('%.0f', number)
end
