#!lua flags=allow-oom
--[[
  The named members, or all, that the claim still holds are unclaimed again at their former dues.

  KEYS  1 meta  2 heads  3 claims  4 leases  5 wake  6... lanes of the claim
  ARGV  layout, lanes (numbers, in the order of KEYS), all (bool), members {from, to}, id (position)
  Reply {released, remaining}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include claims

local META, HEADS, CLAIMS, LEASES, WAKE = unpack(KEYS, 1, 5)
local refused = refusal(META)
if refused then
  return refused
end
local id = ARGV[args.id]
local token = redis.call('ZSCORE', CLAIMS, id)
if not token then
  return { 0, 0 }
end
local band = CLAIMED + tonumber(token)
local before, now = shard_head(HEADS), server_time()
local dues = read_record(redis.call('HGET', LEASES, id))
local named = {}
for i = args.members[1], args.members[2] do
  named[ARGV[i]] = true
end

local released, remaining = 0, 0
for i, lane in ipairs(args.lanes) do
  local lane_key, change = KEYS[5 + i], {}
  for _, member in ipairs(redis.call('ZRANGE', lane_key, band, band, 'BYSCORE')) do
    if args.all or named[member] then
      change[#change + 1] = due_before(dues, member, now)
      change[#change + 1] = member
    else
      remaining = remaining + 1
    end
  end
  if #change > 0 then
    change_scores(lane_key, change)
    released = released + #change / 2
    refresh_head(HEADS, lane, lane_key)
  end
end
if remaining == 0 then
  drop_claim(CLAIMS, LEASES, id)
end
announce_head(HEADS, before, WAKE, now)
return { released, remaining }
