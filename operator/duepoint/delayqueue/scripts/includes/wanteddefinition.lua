-- include definition
-- include moves
-- Reads the definition of the caller's schedule; replies BUSY or ABSENT if it is elsewhere, GONE if none has its uid.
local id = ARGV[args.id]
local stored = redis.call('HGET', BUCKET, id)
local elsewhere = where_else(id, stored)
if elsewhere then
  return elsewhere
end
if not stored or identity(stored) ~= ARGV[args.uid] then
  return 'GONE'
end
