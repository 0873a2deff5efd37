-- The letter goes, and its count; whether it was there.
local function remove_letter(dead, order, sums, id)
  local found = redis.call('XRANGE', dead, id, id)[1]
  if not found then
    return false
  end
  local namespace, bytes = origin_of_letter(found[2])
  redis.call('XDEL', dead, id)
  subtract_letter(order, sums, letter_member(id, namespace, bytes), namespace, bytes)
  return true
end
