-- include definition
-- include moves
-- The definition of the caller's schedule; BUSY or ABSENT where it is elsewhere, GONE where there is none of its uid.
local id = ARGV[args.id]
local stored = redis.call('HGET', BUCKET, id)
local elsewhere = where_else(id, stored)
if elsewhere then
  return elsewhere
end
if not stored or identity(stored) ~= ARGV[args.uid] then
  return 'GONE'
end
