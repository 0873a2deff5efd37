-- include deadletters
-- The letter goes, and its count; whether it was there.
local function remove_letter(id)
  local found = redis.call('XRANGE', DEAD, id, id)[1]
  if not found then
    return false
  end
  redis.call('XDEL', DEAD, id)
  subtract_letter(letter_member(id, found[2]))
  return true
end
