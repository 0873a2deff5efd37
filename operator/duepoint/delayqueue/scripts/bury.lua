#!lua flags=allow-oom
--[[
  Store dead letters of a former shard, under the ids that they had. Letters that are here already stay as they are.

  KEYS  then log
  ARGV  layout, epoch, log {key, lane, bytes}: as in settle.lua, letters {{id, from, to}}: text, and fields in ARGV; oldest first
  Reply OK
]]
-- keys meta logs
-- include shard
-- include fenced
-- include time
-- include log

for _, letter in ipairs(args.letters) do
  local fields = { unpack(ARGV, letter[2], letter[3]) }
  local here = redis.call('XRANGE', KEYS[args.log.key], letter[1], letter[1])[1]
  if not here or table.concat(here[2], '\0', 3) ~= table.concat(fields, '\0') then
    add_to_log(LOGS, args.log, fields, letter[1])
  end
end
return 'OK'
