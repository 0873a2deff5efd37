#!lua flags=allow-oom
--[[
  The named members, or all, that the claim still holds are unclaimed again at their former dues.
  Where the claim was lost its owner lives nevertheless: of its points the one that somebody else
  holds alone is no longer suspected of having killed it.

  KEYS  1 meta  2 heads  3 claims  4 leases  5 wake  6... lanes of the claim
  ARGV  layout, lanes (numbers, in the order of KEYS), all (bool), members {from, to}, id (position),
        former {{from, to} of members, for each lane}: the points that the claim began with
  Reply {released, remaining}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include record
-- include claims

local META, HEADS, CLAIMS, LEASES, WAKE = unpack(KEYS, 1, 5)
local refused = refusal(META)
if refused then
  return refused
end
local id = ARGV[args.id]

-- The claim that holds the member alone now, if it does, has one suspect less.
local function clear(lane_key, member)
  local score = tonumber(redis.call('ZSCORE', lane_key, member) or 'nil')
  if not score or score < CLAIMED then
    return
  end
  local token = score - CLAIMED
  local holder = redis.call('ZRANGE', CLAIMS, token, token, 'BYSCORE', 'LIMIT', 0, 1)[1]
  local suspects = holder and redis.call('HGET', LEASES, holder .. ':s')
  for first = 1, #(suspects or ''), CLAIM_ID_LENGTH do
    if string.sub(suspects, first, first + CLAIM_ID_LENGTH - 1) == id then
      redis.call('HSET', LEASES, holder .. ':s',
        string.sub(suspects, 1, first - 1) .. string.sub(suspects, first + CLAIM_ID_LENGTH))
      return
    end
  end
end

local token = redis.call('ZSCORE', CLAIMS, id)
if not token then
  for i, former in ipairs(args.former) do
    for j = former[1], former[2] do
      clear(KEYS[5 + i], ARGV[j])
    end
  end
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
    local due = (args.all or named[member]) and due_before(dues, member, now)
    if due then
      change[#change + 1] = due
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
