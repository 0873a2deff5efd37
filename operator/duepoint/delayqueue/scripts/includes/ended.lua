-- include definition
-- One-offs of sets that have ended and left, so that a repeated request makes none of them again: id -> instant (7) and
-- fingerprint (4). Two hashes take turns: after a minute, or when the one is full, the other begins anew. META `ended`
-- counts the turns, `ended_since` says when the last one began (us). Both hashes may be lost.

-- The fingerprint of the one-off of this id and instant that has ended a short while ago; nil = none is known.
local function ended_as(id, record)
  local instant = instant_of(record)
  for _, key in ipairs(instant and { ENDED_EVEN, ENDED_ODD } or {}) do
    local ended = redis.call('HGET', key, id)
    if ended and string.sub(ended, 1, INSTANT_LENGTH) == instant then
      return string.sub(ended, INSTANT_LENGTH + 1)
    end
  end
  return nil
end
