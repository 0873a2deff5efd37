#!lua flags=no-writes
--[[
  Read members of a set by their ids, and the dues of their chains: each pair is read at one instant. The rows may be of
  different shards if one server holds them. The script checks no shard; the caller does if it misses members.

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
