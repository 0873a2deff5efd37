-- include rescoring
-- A claim is an id in `claims` (score = lease expiry), its points carry 2^52 + expiry as score, and `leases` says what they
-- were before: <id> -> see record.lua; <id>:a -> attempts and how often alone, <id>:e -> how long its lease was made for (us),
-- <id>:l -> its owner has nothing else in hand (`alone`), <id>:s -> ids of the claims whose owners had nothing in hand but this
-- point and were not heard of again (12 bytes each, suspected of having died of it), <id>:g -> given back by an owner that
-- lives, <id>:q -> last settle number, <id>:x -> its members are not those of the record (a reclaim, plan or split changed them).
local function drop_claim(id)
  redis.call('ZREM', CLAIMS, id)
  redis.call('HDEL', LEASES, id, id .. ':a', id .. ':l', id .. ':s', id .. ':g', id .. ':q', id .. ':x', id .. ':e')
end
