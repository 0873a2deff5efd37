#!lua flags=allow-oom
--[[
  The named members, or all, that the claim still holds are given back: occurrences are due again at their
  former dues, chains belong to a claim that has ended already and has lost no owner, so that the worker that
  takes it over judges them as of their first claim.

  KEYS  then the lanes of the claim
  ARGV  layout, lanes (in the order of KEYS), all (bool), members {from, to}, id (position),
        given (position; id of the claim of what is given back)
  Reply {released, remaining}
]]
-- keys meta heads claims leases wake
-- include shard
-- include wake
-- include record
-- include claims
-- include callersclaim

if not token then
  return { 0, 0 }
end
local before, now = shard_head(), server_time()
local dues, _, first, worker = read_record(redis.call('HGET', LEASES, id))
-- Made before the server went back: what it holds may have been settled since, and waits for the leader (claim.lua).
local is_old = first and first <= (tonumber(meta[6]) or 0)
local named = {}
for i = args.members[1], args.members[2] do
  named[ARGV[i]] = true
end

-- What is due at once under the new claim, {lane, {member, due, ...}, ...}, and where it lies.
local given, given_keys = {}, {}
local released, remaining = 0, 0
for i, lane in ipairs(args.lanes) do
  local lane_key, change, chains = KEYS[5 + i], {}, {}
  for _, member in ipairs(redis.call('ZRANGE', lane_key, band, band, 'BYSCORE')) do
    local due = (args.all or named[member]) and due_before(dues, member, now)
    if due and (#member == CHAIN_LENGTH or is_old) then
      chains[#chains + 1], chains[#chains + 2] = member, due
    elseif due then
      change[#change + 1], change[#change + 2] = due, member
    else
      remaining = remaining + 1
    end
  end
  if #change > 0 then
    change_scores(lane_key, change)
    refresh_head(lane, lane_key)
  end
  if #chains > 0 then
    given[#given + 1], given[#given + 2] = lane, chains
    given_keys[#given_keys + 1] = lane_key
  end
  released = released + (#change + #chains) / 2
end
if #given > 0 then
  local claim, free = ARGV[args.given], free_token(now)
  redis.call('ZADD', CLAIMS, free, claim) -- before its points, as ever
  redis.call('HSET', LEASES, claim, cmsgpack.pack(RECORD_FORMAT, worker, given, first), claim .. ':g', 1)
  for i, lane_key in ipairs(given_keys) do
    rescore(lane_key, given[2 * i], 2, CLAIMED + free)
  end
  announce(now, now)
end
if remaining == 0 then
  drop_claim(id)
end
announce_head(before, now)
return { released, remaining }
