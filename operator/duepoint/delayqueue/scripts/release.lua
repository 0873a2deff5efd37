#!lua flags=allow-oom
--[[
  Give back the named members, or all, that the claim still holds. They go to a new claim that has already expired and
  has lost no owner, so that the worker that takes it over judges them as of their first claim.

  KEYS  then the lanes of the claim
  ARGV  layout, lanes (in the order of KEYS), all (bool), members {from, to}, id (position),
        given (position; id of the new claim)
  Reply {released, remaining}
]]
-- keys meta heads claims leases wake
-- include shard
-- include wake
-- include record
-- include claims
-- include callersclaim
local FIRST_LANE = 6

if not token then
  return { 0, 0 }
end
local now, named = server_time(), {}
local dues, _, first, worker = read_record(redis.call('HGET', LEASES, id))
for i = args.members[1], args.members[2] do
  named[ARGV[i]] = true
end

-- {lane, {member, due, ...}, ...}, and the key of each lane.
local given, given_keys = {}, {}
local released, remaining = 0, 0
for i, lane in ipairs(args.lanes) do
  local lane_key, found = KEYS[FIRST_LANE + i - 1], {}
  for _, member in ipairs(redis.call('ZRANGE', lane_key, band, band, 'BYSCORE')) do
    local due = (args.all or named[member]) and due_before(dues, member, now)
    if due then
      found[#found + 1], found[#found + 2] = member, due
    else
      remaining = remaining + 1
    end
  end
  if #found > 0 then
    given[#given + 1], given[#given + 2] = lane, found
    given_keys[#given_keys + 1] = lane_key
  end
  released = released + #found / 2
end
if released > 0 then
  local claim, free = ARGV[args.given], free_token(now)
  redis.call('ZADD', CLAIMS, free, claim) -- before its points, as in claim.lua
  redis.call('HSET', LEASES, claim, cmsgpack.pack(RECORD_FORMAT, worker, given, first or now), claim .. ':g', 1)
  for i, lane_key in ipairs(given_keys) do
    rescore(lane_key, given[2 * i], 2, CLAIMED + free)
  end
  announce(now)
end
if remaining == 0 then
  drop_claim(id)
end
return { released, remaining }
