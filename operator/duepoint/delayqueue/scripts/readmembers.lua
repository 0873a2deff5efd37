#!lua flags=no-writes
--[[
  Members of a set by their ids, and when the chains of their records are due: each pair is of one moment. The shards
  of the rows may differ where one server holds them; what a shard is, the caller knows from what it does not find.

  KEYS  lanes and buckets
  ARGV  places {lane, bucket, ...}: positions in KEYS for each row; then the id of each row
  Reply {record or false, score of its chain or false, ...}
]]
-- include members
local args = cmsgpack.unpack(ARGV[1])
local places, answers, sub = args.places, {}, string.sub
for i = 1, #ARGV - 1 do
  local lane, bucket, id = KEYS[places[2 * i - 1]], KEYS[places[2 * i]], ARGV[i + 1]
  local record = redis.call('HGET', bucket, id)
  answers[2 * i - 1] = record
  answers[2 * i] = record and redis.call('ZSCORE', lane, id .. sub(record, 4, 7))
end
return answers
