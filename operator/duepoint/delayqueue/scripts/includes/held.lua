-- What waits to be compared carries the score of a claim that never ends; that claim is there while
-- anything may.

local HELD, HELD_TOKEN = 'held', 4503599627370494 -- 2^52 - 2: no lease ends so late

local function add_held(claims)
  redis.call('ZADD', claims, string.format('%.0f', HELD_TOKEN), HELD)
end
