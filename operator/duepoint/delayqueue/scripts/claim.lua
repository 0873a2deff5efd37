#!lua flags=allow-oom
--[[
  Due points belong to the claim id alone until its lease ends. A point is due when both the server's clock and
  the caller's say so; leases know the server's clock alone. An expired claim comes first: of its points
  ceil(batch / 8^attempts) change owner, so that a poisonous one is soon alone; when they were claimed first
  goes with them. A claim that was given back has lost no owner. Each lane with something due gets its share of
  the batch. A caller that skips suspects gets nothing that has lost two owners already, and learns that there
  is some. Where the server went back, nothing is handed out of a Schedule that was due until then before the
  leader has put that again.

  KEYS  then lanes
  ARGV  layout, worker, lease (us), cap (us, caller's UTC + 5 ms), batch (points), lanes (numbers,
        in the order of KEYS), due_delay, expiry_delay (us, of a worker that is not preferred),
        skip_suspects (bool), mark (the highest that the caller has seen), mark_age (us),
        former and moved (what was found out after the reply 'other'), ran (channel; no
        key, since a script that names a key that is not there has to wait while its slot moves to another node),
        id (position); the last value is the run id of the server that this is sent to, or '', and
        since when that is known: see doubt.lua
  A batch is shared out by namespace, and a namespace's part by its lanes. Of more than 64 lanes that are due the
  namespaces take turns, each with its oldest lanes first; a caller learns in the reply which to name the next time. 1,024
  are looked at, of more due ones others in each second.

  Reply {'claimed', cap us, token us, server time us, attempts, alone, more (points that are due besides, 1 at least; 0: none), wait us,
           {lane, {member, due, ...}, ...}, {occurrence, record, ...}, {lane of each head ...},
           left alone (0 or 1), first claimed us, mark, {member, due, ...: see next_members}}
        {'idle', wait us (-1: nothing to wait for), {lane of each head ...}, left alone (0 or 1), server time us,
           {member, due, ...: the same}}
        {'other', run id}: call again and say whether that server, which the shard was on, is a primary still; nothing was
           changed
        {'lanes', {number ...}}: these must be among KEYS; nothing was claimed
]]
-- keys meta heads claims leases occrec runs interned crashes
-- include shard
-- include heads
-- include record
-- include claims
-- include doubt

local FIXED_KEYS = 8
local MOST_LANES, MOST_LOOKED_AT = 64, 1024
local MOST_EMPTY_CLAIMS = 8
local MOST_LEFT_ALONE = 100
local MOST_HOLD = 60000000 -- microseconds
local MOST_AHEAD, AHEAD = 4, 1000000 -- points of a set's lane that are named ahead of their dues, and microseconds
local MOST_SHORTENED, TOLERANCE = 16, 1000000 -- leases, and microseconds that a clock may be slewed by
local LEAST_WAIT = 200 -- microseconds; a caller that comes a little early does not come a millisecond late

local id, now = ARGV[args.id], server_time()
local cap = math.min(now, args.cap)
local limit = cap - args.due_delay
local keys = {}
for i, lane in ipairs(args.lanes) do
  keys[lane] = KEYS[FIXED_KEYS + i]
end
local other = look_at_server(ARGV[#ARGV], now)
if other then
  return other
end
local back = tonumber(meta[6])

-- A slot that waits for others may have been called up before its due, which therefore does not say whether it has run:
-- in a shard in doubt it is due by `back`. The rest of a flat {member, due, ...} list.
local function without_called_up(lane, found)
  if not is_in_doubt(lane) then
    return found
  end
  local rest, waiting = {}, {}
  for i = 1, #found, 2 do
    local member = found[i]
    if #member == OCCURRENCE_LENGTH and string.byte(member, KIND_POSITION) == QUEUED and slot_of(member) <= back then
      waiting[#waiting + 1] = member
    else
      rest[#rest + 1], rest[#rest + 2] = member, found[i + 1]
    end
  end
  rescore(keys[lane], waiting, 1, back)
  return rest
end

-- Leases that were made while the server's clock was ahead: none ends later than its own length from now. Their owners
-- count from when they asked, and so none of them loses any time. Not while the clock is behind that of the caller: what was
-- shortened then would be over when the clock is right again. The lanes of those that have one that is not known.
local function shorten_leases()
  if now + TOLERANCE < args.cap then
    return {}
  end
  local missing, longest = {}, now + args.lease + TOLERANCE
  local late = redis.call('ZRANGE', CLAIMS, '(+inf', '(' .. digits(longest), 'BYSCORE', 'REV', 'LIMIT', 0,
    MOST_SHORTENED, 'WITHSCORES')
  for i = 1, #late, 2 do
    local claim, ends = late[i], tonumber(late[i + 1])
    local length = tonumber(redis.call('HGET', LEASES, claim .. ':e') or 'nil')
    if length and ends > now + length + TOLERANCE then
      local _, lanes = read_record(redis.call('HGET', LEASES, claim))
      local lane_keys = lane_keys_of(lanes, keys)
      if lane_keys and #lanes > 0 then
        change_lease(claim, ends, now + length, lane_keys)
      end
      for _, lane in ipairs(not lane_keys and lanes or {}) do
        missing[#missing + 1] = lane
      end
    end
  end
  return missing
end

-- The namespace whose lane has this text: its own, or that of a set; the lane itself where it has none.
local function namespace_of(lane, text)
  return text and (string.match(text, '^n(.+)$') or string.match(text, '^s[^/]*/([^/]+)/')) or lane
end

-- These lanes by namespace, in their order.
local function by_namespace(lanes)
  local texts, own_lanes, groups = {}, {}, {}
  for i, lane in ipairs(lanes) do
    texts[i] = 'n:' .. lane
  end
  for i, text in ipairs(redis.call('HMGET', INTERNED, unpack(texts))) do
    local namespace = namespace_of(lanes[i], text)
    local group = own_lanes[namespace]
    if group then
      group[#group + 1] = lanes[i]
    else
      groups[#groups + 1] = { lanes[i] }
      own_lanes[namespace] = groups[#groups]
    end
  end
  return groups
end

-- As many of these lanes as a claim has, oldest first; each namespace has one before another has two.
local function shared_out(lanes)
  local groups, chosen = by_namespace(lanes), {}
  for turn = 1, #lanes do
    for _, group in ipairs(groups) do
      chosen[#chosen + 1] = group[turn]
      if #chosen == MOST_LANES then
        return chosen
      end
    end
  end
  return chosen
end

local chosen_lanes -- where more are due than a claim has

local function due_lanes()
  local lanes = redis.call('ZRANGE', HEADS, '-inf', limit, 'BYSCORE', 'LIMIT', 0, MOST_LANES)
  if #lanes == MOST_LANES then
    -- Other parts of them in each second: a namespace with thousands of lanes does not hide a neighbour's for ever.
    local parts = math.ceil(redis.call('ZCOUNT', HEADS, '-inf', limit) / MOST_LOOKED_AT)
    local first = math.floor(now / 1000000) % parts * MOST_LOOKED_AT
    lanes = shared_out(redis.call('ZRANGE', HEADS, '-inf', limit, 'BYSCORE', 'LIMIT', first, MOST_LOOKED_AT))
    chosen_lanes = lanes
  end
  return lanes
end

local function first_lanes()
  if chosen_lanes then
    return chosen_lanes
  end
  local lanes = redis.call('ZRANGE', HEADS, 0, MOST_LANES - 1)
  if lanes[#lanes] == '' then
    lanes[#lanes] = nil
  end
  return lanes
end

-- Claims that have ended, oldest first; those that the caller skips are counted only.
local left_alone = 0

local function ended_claims()
  local most = args.skip_suspects and MOST_LEFT_ALONE or MOST_EMPTY_CLAIMS
  local ended = redis.call('ZRANGE', CLAIMS, '-inf', now - args.expiry_delay, 'BYSCORE', 'LIMIT', 0, most)
  if not args.skip_suspects or #ended == 0 then
    return ended
  end
  local counts, given = {}, {}
  for i, ended_id in ipairs(ended) do
    counts[i] = ended_id .. ':a'
  end
  for i, counted in ipairs(redis.call('HMGET', LEASES, unpack(counts))) do
    if counted then
      left_alone = left_alone + 1
    elseif #given < MOST_EMPTY_CLAIMS then
      given[#given + 1] = ended[i]
    end
  end
  return given
end

local head_due, head_lane

-- The shard's head; asked for once `heads` changes no more.
local function last_head()
  if not head_due then
    head_due, head_lane = shard_head()
  end
  return head_due, head_lane
end

local function wait()
  -- Those left alone wait for another worker, and no worker for them.
  local passed = left_alone > 0 and '(' .. digits(now - args.expiry_delay) or '-inf'
  local expiry = redis.call('ZRANGE', CLAIMS, passed, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  local expires_in = math.huge
  if expiry[1] and expiry[1] ~= '' then
    -- Asked for again when a lease of this length is over: the clock may be ahead now, and right then.
    expires_in = math.min(tonumber(expiry[2]) - now, args.lease + TOLERANCE) + args.expiry_delay
  end
  local least = math.min(last_head() - limit, expires_in)
  return least == math.huge and -1 or digits(math.max(least, LEAST_WAIT))
end

-- What is due next, where that is of a set: no worker has seen a member that fires once, and one that knows its id
-- claims it and reads it in one round trip.
local function next_members()
  local due, lane = last_head()
  if due > now + AHEAD or not keys[lane] or redis.call('HEXISTS', META, 's' .. lane) == 0 then
    return {}
  end
  return redis.call('ZRANGE', keys[lane], due, now + AHEAD, 'BYSCORE', 'LIMIT', 0, MOST_AHEAD, 'WITHSCORES')
end

local function idle(waited)
  return { 'idle', waited, first_lanes(), math.min(left_alone, 1), digits(now), next_members() }
end

-- How many points are left in these lanes that are due.
local function count_due(found_by_lane)
  local count = 0
  for i = 1, #found_by_lane, 2 do
    count = count + redis.call('ZCOUNT', keys[found_by_lane[i]], first_score(found_by_lane[i]), limit)
  end
  return count
end

local function own(found_by_lane, attempts, alone, first)
  local token = free_token(now + args.lease)
  local occurrences = {}
  -- The claim before its points: cut short (for want of a right), it leaves them due.
  redis.call('ZADD', CLAIMS, token, id)
  redis.call('HSET', LEASES, id, cmsgpack.pack(RECORD_FORMAT, args.worker, found_by_lane, first),
    id .. ':e', digits(args.lease))
  for i = 1, #found_by_lane, 2 do
    local lane, found = found_by_lane[i], found_by_lane[i + 1]
    rescore(keys[lane], found, 2, CLAIMED + token)
    refresh_head(lane, keys[lane])
    for j = 1, #found, 2 do
      if #found[j] > CHAIN_LENGTH then
        occurrences[#occurrences + 1] = found[j]
      end
    end
  end
  if attempts > 0 then
    redis.call('HSET', LEASES, id .. ':a', attempts)
  end
  local records = {}
  for i, record in ipairs(#occurrences > 0 and redis.call('HMGET', OCCREC, unpack(occurrences)) or {}) do
    records[2 * i - 1], records[2 * i] = occurrences[i], record or ''
  end
  local more = redis.call('ZCOUNT', CLAIMS, '-inf', now - args.expiry_delay) > left_alone and 1 or 0
  if last_head() <= limit then
    more = math.max(1, more + count_due(found_by_lane))
  end
  return { 'claimed', digits(cap), digits(token), digits(now), attempts, alone, more, wait(), found_by_lane,
    records, first_lanes(), math.min(left_alone, 1), digits(first),
    digits(redis.call('HINCRBY', META, 'mark', 1)), next_members() }
end

-- What a claim holds that was made before the server went back may have been settled since: what it holds of Schedules is
-- due as it was, for the leader to look at. Members of sets fire again: nothing but the queue knows of them.
local function put_back(lanes, dues, band)
  for _, lane in ipairs(lanes) do
    local is_of_set, change = redis.call('HEXISTS', META, 's' .. lane) == 1, {}
    for _, member in ipairs(is_of_set and {} or redis.call('ZRANGE', keys[lane], band, band, 'BYSCORE')) do
      local due = due_before(dues, member, now)
      if due then
        change[#change + 1], change[#change + 2] = digits(math.min(tonumber(due), back)), member
      end
    end
    if #change > 0 then
      begin_doubt(back, now)
      change_scores(keys[lane], change)
    end
  end
end

local function reclaim(expired)
  local counted = redis.call('HMGET', LEASES, expired .. ':a', expired .. ':g')
  local attempts = tonumber(counted[1] or 0)
  local band = CLAIMED + tonumber(redis.call('ZSCORE', CLAIMS, expired))
  local take = math.ceil(args.batch / 8 ^ attempts)
  local dues, lanes, first = read_record(redis.call('HGET', LEASES, expired))
  if not lane_keys_of(lanes, keys) then
    return { 'lanes', lanes }
  end
  if back and first and first <= back then
    put_back(lanes, dues, band)
  end
  local found_by_lane, taken, seen, held, with_due = {}, 0, 0, 0, 0
  for _, lane in ipairs(lanes) do
    held = held + redis.call('ZCOUNT', keys[lane], band, band)
    if seen < take then
      local members = redis.call('ZRANGE', keys[lane], band, band, 'BYSCORE', 'LIMIT', 0, take - seen)
      local found = {}
      for _, member in ipairs(members) do
        local due = due_before(dues, member, now)
        if due then
          found[#found + 1], found[#found + 2] = member, due
        end
      end
      seen, with_due = seen + #members, with_due + #found / 2
      if #found > 0 then
        found_by_lane[#found_by_lane + 1], found_by_lane[#found_by_lane + 2] = lane, found
        taken = taken + #found / 2
      end
    end
  end
  if seen == held or with_due == 0 then
    drop_claim(expired)
  else
    redis.call('HSET', LEASES, expired .. ':x', 1)
  end
  if taken == 0 then
    return nil
  end
  local alone = 0
  if held == 1 then
    local member, due = unpack(found_by_lane[2])
    alone = tonumber(redis.call('HGET', CRASHES, member .. digits(tonumber(due))) or 0)
  end
  return own(found_by_lane, attempts + (counted[2] and 0 or 1), alone, first)
end

local of_leases = shorten_leases()
if #of_leases > 0 then
  return { 'lanes', of_leases }
end
for _, expired in ipairs(ended_claims()) do
  local reply = reclaim(expired)
  if reply then
    return reply
  end
end

local hold = shard_state == 'draining' and tonumber(redis.call('HGET', META, 'hold') or '0') or 0
if now < hold and hold < now + MOST_HOLD then -- later than that: the server's clock was put back
  return idle(digits(math.max(hold - now, 1000)))
end
local known, unknown = {}, {}
for _, lane in ipairs(due_lanes()) do
  if keys[lane] then
    known[#known + 1] = lane
  elseif is_lane(lane) then
    unknown[#unknown + 1] = lane
  else
    redis.call('ZREM', HEADS, lane) -- not written by us; it would be due for ever
  end
end
if #unknown > 0 and #known == 0 then
  return { 'lanes', unknown }
end
-- What each lane of these groups gives of the batch, which the groups share evenly, and the lanes of each its part;
-- whether a lane has more.
local function shared_by(groups)
  local found_by_lane, left, is_cut = {}, args.batch, false
  for i, lanes in ipairs(groups) do
    local part = math.ceil(left / (#groups - i + 1))
    left = left - part
    for j, lane in ipairs(lanes) do
      local share = math.ceil(part / (#lanes - j + 1))
      local found = share > 0 and without_called_up(lane,
        redis.call('ZRANGE', keys[lane], first_score(lane), limit, 'BYSCORE', 'LIMIT', 0, share, 'WITHSCORES')) or {}
      if #found > 0 then
        found_by_lane[#found_by_lane + 1], found_by_lane[#found_by_lane + 2] = lane, found
        part = part - #found / 2
      elseif share > 0 then
        refresh_head(lane, keys[lane])
      end
      is_cut = is_cut or #found == 2 * share
    end
    left = left + part
  end
  return found_by_lane, is_cut
end

local each = {}
for i, lane in ipairs(known) do
  each[i] = { lane }
end
local found_by_lane, is_cut = shared_by(each)
if is_cut and #known > 1 then
  local groups, place = by_namespace(known), {}
  for i, group in ipairs(groups) do
    place[group] = i
  end
  if #groups < #known then
    -- Namespaces with few lanes first: what they leave of their parts goes to those with many.
    table.sort(groups, function(one, other)
      return #one < #other or #one == #other and place[one] < place[other]
    end)
    found_by_lane = shared_by(groups)
  end
end
if #found_by_lane > 0 then
  return own(found_by_lane, 0, 0, cap)
end
return idle(wait())
