#!lua flags=allow-oom
--[[
  Claim due points. They belong to the claim id alone until its lease ends, and come with the records of their schedules. A
  point is due when both the server's clock and the caller's say so; leases use the server's clock alone. An expired claim
  comes first: ceil(batch / 8^attempts) of its points change owner, so that a poisonous one is soon alone, and they keep the
  time of their first claim. A claim that was given back has lost no owner. Each lane with due points gets its share of the
  batch. A caller that skips suspects gets no points that have lost two owners already, and learns that there are some.
  After the server has rolled back, the script hands out no point of a Schedule that was due until then before the
  leader has put that Schedule again.

  Namespaces share the batch, and the lanes of a namespace share its part. If more than 64 lanes are due, namespaces
  take turns, each with its oldest lanes first. One call reads 1,024 due lanes; if there are more, others in each second.

  ARGV  layout, worker, lease (us), latest (us after now that no lease can end), cap (us, caller's UTC + 5 ms), batch (points), buckets (of each population),
        due_delay, expiry_delay (us, of a worker that is not preferred),
        skip_suspects (bool), mark (the highest that the caller has seen), mark_age (us),
        former and moved (what the caller found out after the reply 'other'), ran (channel; not a
        key, because a script that names a missing key must wait while its slot migrates to another node),
        id (position); the last value is the run id of the server that this is sent to, or '', and
        how long the caller has known it: see doubt.lua
  Reply {name, value, ...}: time (us, of the server), wait (us; -1: nothing to wait for), left_alone (0 or 1);
        and for a claim cap, token, first (its first claim) in us, attempts, alone, mark, more (further due points,
          at least 1; 0: none), lanes {lane, the shard's entry of its set or false, {member, due, ...},
          {record or false, of the schedule of each member}, ...}, occurrences {member, record, ...}
        | {'other', run id}: call again and say whether that server, which the shard was on, is still a primary; nothing
          changed
]]
-- keys meta heads claims leases occrec runs crashes
-- include shard
-- include keys
-- include heads
-- include record
-- include claims
-- include doubt

local MOST_LANES, MOST_LOOKED_AT = 64, 1024
local MOST_EMPTY_CLAIMS = 8
local MOST_LEFT_ALONE = 100
local MOST_HOLD = 60000000 -- microseconds
local TOLERANCE = 1000000 -- microseconds that a clock may be slewed by
local LEAST_WAIT = 200 -- microseconds; a caller that comes slightly early still does not come a millisecond late

local id, now = ARGV[args.id], server_time()
local cap = math.min(now, args.cap)
local limit, expired_until = cap - args.due_delay, now - args.expiry_delay
local other = look_at_server(ARGV[#ARGV], now)
if other then
  return other
end
local back = tonumber(meta[6])

-- -- expired claims ----------------------------------------------------------------------------

-- Returns expired claims, oldest first, and how many more hold suspects that the caller skips. A lease that ends
-- later than any valid one was made while the server's clock was wrong, and counts as expired.
local function ended_claims()
  local most = args.skip_suspects and MOST_LEFT_ALONE or MOST_EMPTY_CLAIMS
  local ended = redis.call('ZRANGE', CLAIMS, '-inf', expired_until, 'BYSCORE', 'LIMIT', 0, most)
  if #ended == 0 then
    ended = redis.call('ZRANGE', CLAIMS, '(' .. digits(now + args.latest), '(+inf', 'BYSCORE', 'LIMIT', 0, most)
  end
  if not args.skip_suspects or #ended == 0 then
    return ended, 0
  end
  local counts, given, left_alone = {}, {}, 0
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
  return given, left_alone
end

-- Points of a claim from before the server rolled back may have been settled since. Those of Schedules get their old dues
-- again, for the leader to check. Members of sets fire again: only the queue knows them.
local function put_back(lanes, dues, band)
  for _, lane in ipairs(lanes) do
    local change = {}
    for _, member in ipairs(is_of_set(lane) and {} or redis.call('ZRANGE', lane_key(lane), band, band, 'BYSCORE')) do
      local due = due_before(dues, member, now)
      if due then
        change[#change + 1], change[#change + 2] = digits(math.min(tonumber(due), back)), member
      end
    end
    if #change > 0 then
      begin_doubt(back, now)
      change_scores(lane_key(lane), change)
    end
  end
end

-- Takes points of an expired claim over, as the arguments of `own`; nil if it has none.
local function taken_over(expired)
  local counted = redis.call('HMGET', LEASES, expired .. ':a', expired .. ':g')
  local attempts = tonumber(counted[1] or 0)
  local band = CLAIMED + tonumber(redis.call('ZSCORE', CLAIMS, expired))
  local take = math.ceil(args.batch / 8 ^ attempts)
  local dues, lanes, first = read_record(redis.call('HGET', LEASES, expired))
  if back and first and first <= back then
    put_back(lanes, dues, band)
  end
  local found_by_lane, seen, held, with_due = {}, 0, 0, 0
  for _, lane in ipairs(lanes) do
    local key = lane_key(lane)
    held = held + redis.call('ZCOUNT', key, band, band)
    local members = seen < take and redis.call('ZRANGE', key, band, band, 'BYSCORE', 'LIMIT', 0, take - seen) or {}
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
    end
  end
  if seen == held or with_due == 0 then
    drop_claim(expired)
  end
  if with_due == 0 then
    return nil
  end
  local alone = 0
  if held == 1 then
    local member, due = unpack(found_by_lane[2])
    alone = tonumber(redis.call('HGET', CRASHES, member .. digits(tonumber(due))) or 0)
  end
  return { found_by_lane = found_by_lane, attempts = attempts + (counted[2] and 0 or 1), alone = alone, first = first }
end

-- -- due points --------------------------------------------------------------------------------

-- Returns these lanes in groups by namespace, in their order.
local function by_namespace(lanes)
  local group_of, groups = {}, {}
  for _, lane in ipairs(lanes) do
    local namespace = string.match(lane, '^n(.+)$') or string.match(lane, '^s[^/]*/([^/]+)/') or lane
    local group = group_of[namespace]
    if group then
      group[#group + 1] = lane
    else
      groups[#groups + 1] = { lane }
      group_of[namespace] = groups[#groups]
    end
  end
  return groups
end

-- Chooses as many lanes as a claim may have, oldest first; each namespace gets one before any gets two.
local function in_turn(lanes)
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

-- Returns the lanes to claim from.
local function due_lanes()
  local heads = redis.call('ZRANGE', HEADS, '-inf', limit, 'BYSCORE', 'LIMIT', 0, MOST_LANES)
  local is_cut, lanes = #heads == MOST_LANES, {}
  if is_cut then
    -- Another part of them in each second: a namespace with thousands of lanes must not hide a neighbour's for ever.
    local parts = math.ceil(redis.call('ZCOUNT', HEADS, '-inf', limit) / MOST_LOOKED_AT)
    local from = math.floor(now / 1000000) % parts * MOST_LOOKED_AT
    heads = redis.call('ZRANGE', HEADS, '-inf', limit, 'BYSCORE', 'LIMIT', from, MOST_LOOKED_AT)
  end
  for _, head in ipairs(heads) do
    if is_lane(head) then
      lanes[#lanes + 1] = head
    else
      redis.call('ZREM', HEADS, head) -- foreign data, which would be due for ever
    end
  end
  return is_cut and in_turn(lanes) or lanes
end

-- Returns a flat {member, due, ...} list without slots that waited for other runs. Such a slot may have been called up before
-- its due, so in a shard in doubt its due does not say whether it has run: it is put in doubt as due by `back`.
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
  rescore(lane_key(lane), waiting, 1, back)
  return rest
end

-- Collects due points: the groups share the batch evenly, and the lanes of each group its part.
local function shared_by(groups)
  local found_by_lane, left = {}, args.batch
  for i, lanes in ipairs(groups) do
    local part = math.ceil(left / (#groups - i + 1))
    left = left - part
    for j, lane in ipairs(lanes) do
      local share = math.ceil(part / (#lanes - j + 1))
      local found = share > 0 and without_called_up(lane, redis.call('ZRANGE', lane_key(lane), first_score(lane), limit,
        'BYSCORE', 'LIMIT', 0, share, 'WITHSCORES')) or {}
      if #found > 0 then
        found_by_lane[#found_by_lane + 1], found_by_lane[#found_by_lane + 2] = lane, found
        part = part - #found / 2
      elseif share > 0 then
        refresh_head(lane, lane_key(lane))
      end
    end
    left = left + part
  end
  return found_by_lane
end

-- Returns due points as {lane, {member, due, ...}, ...}. Namespaces with few lanes come first: what they leave of their
-- parts goes to those with many.
local function due_points()
  local groups, place = by_namespace(due_lanes()), {}
  for i, group in ipairs(groups) do
    place[group] = i
  end
  table.sort(groups, function(one, two)
    return #one < #two or #one == #two and place[one] < place[two]
  end)
  return shared_by(groups)
end

-- -- the reply ---------------------------------------------------------------------------------

local function wait(left_alone)
  -- Skipped suspects wait for another worker, and this caller need not wake for them.
  local passed = left_alone > 0 and '(' .. digits(expired_until) or '-inf'
  local expiry = redis.call('ZRANGE', CLAIMS, passed, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
  local expires_in = math.huge
  if expiry[1] and expiry[1] ~= '' then
    -- At most one lease from now: a clock that is ahead now may be right by then.
    expires_in = math.min(tonumber(expiry[2]) - now, args.lease + TOLERANCE) + args.expiry_delay
  end
  local least = math.min(shard_head() - limit, expires_in)
  return least == math.huge and -1 or digits(math.max(least, LEAST_WAIT))
end

local function reply(left_alone, waited, ...)
  return { 'time', digits(now), 'wait', waited, 'left_alone', math.min(left_alone, 1), ... }
end

-- Returns the record of the schedule of each member of a {member, due, ...} list, or false. Neighbours in one bucket are
-- read together: a command for each member would cost as much as the rest of the claim.
local function records_of_schedules(found)
  local records, ids, bucket, buckets, sub = {}, {}, nil, args.buckets, string.sub
  local function read_neighbours()
    local read = #ids > 0 and redis.call('HMGET', bucket_key(bucket, buckets), unpack(ids)) or {}
    for i = 1, #read do
      records[#records + 1] = read[i]
    end
    ids = {}
  end
  for j = 1, #found, 2 do
    local member = found[j]
    local its_bucket = #member >= CHAIN_LENGTH and bucket_of(member, buckets) or nil
    if its_bucket ~= bucket then
      read_neighbours()
      bucket = its_bucket
    end
    if bucket then
      ids[#ids + 1] = sub(member, 1, ID_LENGTH)
    else
      records[#records + 1] = false
    end
  end
  read_neighbours()
  return records
end

-- Returns the lanes in the form of the reply, and the occurrences among their members.
local function described(found_by_lane)
  local lanes, occurrences = {}, {}
  for i = 1, #found_by_lane, 2 do
    local lane, found, at = found_by_lane[i], found_by_lane[i + 1], 2 * i
    for j = 1, #found, 2 do
      if #found[j] > CHAIN_LENGTH then
        occurrences[#occurrences + 1] = found[j]
      end
    end
    lanes[at - 1], lanes[at] = lane, is_of_set(lane) and redis.call('HGET', META, lane)
    lanes[at + 1], lanes[at + 2] = found, records_of_schedules(found)
  end
  return lanes, occurrences
end

local function records_of(occurrences)
  local listed = {}
  for i, record in ipairs(#occurrences > 0 and redis.call('HMGET', OCCREC, unpack(occurrences)) or {}) do
    listed[2 * i - 1], listed[2 * i] = occurrences[i], record or ''
  end
  return listed
end

-- Counts further due points; at least 1 if there are any.
local function count_more(found_by_lane, left_alone)
  local more = redis.call('ZCOUNT', CLAIMS, '-inf', expired_until) > left_alone and 1 or 0
  if shard_head() > limit then
    return more
  end
  for i = 1, #found_by_lane, 2 do
    more = more + redis.call('ZCOUNT', lane_key(found_by_lane[i]), first_score(found_by_lane[i]), limit)
  end
  return math.max(1, more)
end

local function own(found_by_lane, attempts, alone, first, left_alone)
  local lanes, occurrences = described(found_by_lane)
  local token = free_token(now + args.lease)
  -- The claim before its points: if a missing right ends the script here, the points stay due.
  redis.call('ZADD', CLAIMS, token, id)
  redis.call('HSET', LEASES, id, cmsgpack.pack(RECORD_FORMAT, args.worker, found_by_lane, first))
  for i = 1, #found_by_lane, 2 do
    local lane = found_by_lane[i]
    rescore(lane_key(lane), found_by_lane[i + 1], 2, CLAIMED + token)
    refresh_head(lane, lane_key(lane))
  end
  if attempts > 0 then
    redis.call('HSET', LEASES, id .. ':a', attempts)
  end
  return reply(left_alone, wait(left_alone), 'cap', digits(cap), 'token', digits(token), 'first', digits(first),
    'attempts', attempts, 'alone', alone, 'mark', digits(redis.call('HINCRBY', META, 'mark', 1)),
    'more', count_more(found_by_lane, left_alone), 'lanes', lanes, 'occurrences', records_of(occurrences))
end

local ended, left_alone = ended_claims()
for _, expired in ipairs(ended) do
  local taken = taken_over(expired)
  if taken then
    return own(taken.found_by_lane, taken.attempts, taken.alone, taken.first, left_alone)
  end
end
local hold = shard_state == 'draining' and tonumber(redis.call('HGET', META, 'hold') or '0') or 0
if now < hold and hold < now + MOST_HOLD then -- later than that: the server's clock was put back
  return reply(left_alone, digits(math.max(hold - now, 1000)))
end
local found_by_lane = due_points()
if #found_by_lane > 0 then
  return own(found_by_lane, 0, 0, cap, left_alone)
end
return reply(left_alone, wait(left_alone))
