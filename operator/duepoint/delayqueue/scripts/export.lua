#!lua
--[[
  Schedules of a draining shard are on their way to another one: nobody can claim their points any
  more, and their edits have to wait. What a worker holds stays: a schedule whose chain is claimed
  (of one whose runs are counted: anything) is left out, a claimed occurrence follows later. All of
  it is noted under the batch, so that
  whoever finds the move unfinished after five seconds finishes it. Definitions, and the list of
  occurrences, stay readable here until `forget`. What stands in the band of claims without a claim
  is held by nobody: a chain goes without its due, which the sweep finds again, an occurrence is due
  at its slot. Points whose definition cannot be read are buried. Nothing leaves a shard in doubt: the
  new one has not gone back, and what waits to be compared would be due there.

  KEYS  1 meta  2 heads  3 claims  4 leases  5 occ  6 occrec  7 dead  8... lanes, buckets
  ARGV  layout, epoch, most (occurrences), latest (us after now that no lease can end), batch
        (position; 16 bytes),
        schedules {{lane, lane key, bucket key, from, to}}: ids in ARGV; their definitions go,
        followers {{lane, lane key, bucket key, from, to}}: members in ARGV whose definition has
          gone before; a chain among them belongs to nobody and is buried
  Reply {left out for now, {{lane, bucket key, id, record or '', due or '', {member, due, record,
         ...}}...}, buried}: nothing is noted when nothing was taken
  Error UNINIT, WRONGLAYOUT, FENCED, OOM
]]
-- include meta
-- include time
-- include heads
-- include record
-- include claims
-- include definition
-- include moves
-- include held

local META, HEADS, CLAIMS, LEASES, OCC, OCCREC, DEAD = unpack(KEYS, 1, 7)
local refused = fenced_refusal(META)
if refused then
  return refused
end
if shard_state ~= 'draining' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and gives nothing away')
end

local left_out, taken, buried, room = 0, {}, 0, args.most
if shard_history.back or redis.call('ZSCORE', CLAIMS, HELD) then
  for _, groups in ipairs({ args.schedules, args.followers }) do
    for _, group in ipairs(groups) do
      left_out = left_out + group[5] - group[4] + 1
    end
  end
  return { left_out, taken, buried }
end
local has_occurrences = redis.call('ZCARD', OCC) > 1
local now = server_time()

local function whole(value)
  return string.format('%.0f', math.floor(value))
end

-- Whether a point with this score is somebody's. A lease that ends later than any can was written
-- while the server's clock was wrong.
local function is_held(score)
  local token = tonumber(score) - CLAIMED
  return token >= 0 and token <= now + args.latest
    and redis.call('ZCOUNT', CLAIMS, whole(token), whole(token)) > 0
end

-- When a point that nobody holds is due; '' of a chain that does not say so.
local function due_of(member, score)
  local due = tonumber(score)
  if due >= 0 and due < CLAIMED then
    return whole(due)
  end
  local before = due_before({}, member, now)
  return before and whole(before) or ''
end

-- Whether a batch that is on its way has it. A mark without its batch is nobody's, and goes.
local function is_moving(id, batch)
  if not batch or redis.call('ZSCORE', CLAIMS, batch) then
    return batch
  end
  redis.call('HDEL', LEASES, mark_of(id))
  return false
end

-- Member, due, record triples of the members that nobody holds; stale entries of the list go.
local function free_occurrences(lane_key, members)
  local triples = {}
  if #members == 0 then
    return triples
  end
  local scores = redis.call('ZMSCORE', lane_key, unpack(members))
  local states = redis.call('HMGET', OCCREC, unpack(members))
  for i, member in ipairs(members) do
    if scores[i] and not is_held(scores[i]) and room > 0 then
      room = room - 1
      triples[#triples + 1] = member
      triples[#triples + 1] = due_of(member, scores[i])
      triples[#triples + 1] = states[i] or ''
    end
  end
  return triples
end

local function note(lane, bucket, id, record, due, triples)
  taken[#taken + 1] = { lane, bucket, id, record, due, triples }
end

local function occurrences_of(id, lane_key)
  if not has_occurrences or room <= 0 then
    return {} -- they follow
  end
  return free_occurrences(lane_key, redis.call('ZRANGE', OCC, '[' .. id,
    '[' .. id .. string.rep('\255', 18), 'BYLEX', 'LIMIT', 0, room))
end

-- Whether a worker holds an occurrence, whose start would be counted in the definition. Ten thousand
-- slots may wait, so what is held in the lane is looked at instead, once for all its schedules; where
-- that is very much, the slots. Of a batch so many in all; what is left goes with another one.
local MOST_AT_A_TIME, MOST_LOOKED_AT, MOST_HELD = 1000, 2000, 5000 -- unpack() carries 7,900
local looked_at, held_in = 0, {}

local function holders_in(lane_key)
  local held, of_score = {}, {}
  local band = redis.call('ZRANGE', lane_key, whole(CLAIMED), '(+inf', 'BYSCORE', 'WITHSCORES')
  for i = 1, #band, 2 do
    local score = band[i + 1]
    if of_score[score] == nil then
      of_score[score] = is_held(score)
    end
    if of_score[score] and #band[i] > CHAIN_LENGTH then
      held[string.sub(band[i], 1, 8)] = true
    end
  end
  return held
end

local function is_any_held(id, lane_key)
  local from, to = '[' .. id, '[' .. id .. string.rep('\255', 18)
  while true do
    local members = redis.call('ZRANGE', OCC, from, to, 'BYLEX', 'LIMIT', 0, MOST_AT_A_TIME)
    if #members == 0 then
      return false
    end
    for _, score in ipairs(redis.call('ZMSCORE', lane_key, unpack(members))) do
      if score and is_held(score) then
        return true
      end
    end
    from = '(' .. members[#members]
  end
end

local function is_tried(id, lane_key)
  if held_in[lane_key] then
    return held_in[lane_key][id]
  end
  local held = redis.call('ZCOUNT', lane_key, whole(CLAIMED), '(+inf')
  if looked_at > 0 and looked_at + held > MOST_LOOKED_AT then
    return held > 0
  end
  looked_at = looked_at + held
  if held <= MOST_HELD then
    held_in[lane_key] = holders_in(lane_key)
    return held_in[lane_key][id]
  end
  return is_any_held(id, lane_key)
end

local function take_schedules(group)
  local lane, lane_key, bucket = group[1], KEYS[group[2]], KEYS[group[3]]
  local records = redis.call('HMGET', bucket, unpack(ARGV, group[4], group[5]))
  local ids, chains, found, marks = {}, {}, {}, {}
  for i = group[4], group[5] do
    local record = records[i - group[4] + 1]
    if record then
      ids[#ids + 1], found[#found + 1] = ARGV[i], record
      chains[#chains + 1] = ARGV[i] .. version_of(record)
      marks[#marks + 1] = mark_of(ARGV[i])
    end
  end
  if #ids == 0 then
    return
  end
  local scores = redis.call('ZMSCORE', lane_key, unpack(chains))
  local moving = redis.call('HMGET', LEASES, unpack(marks))
  for i, id in ipairs(ids) do
    if is_moving(id, moving[i]) or (scores[i] and is_held(scores[i]))
      or (counts_runs(found[i]) and is_tried(id, lane_key)) then
      left_out = left_out + 1
    else
      local due = scores[i] and due_of(chains[i], scores[i]) or ''
      note(lane, group[3], id, found[i], due, occurrences_of(id, lane_key))
      if scores[i] then
        redis.call('ZREM', lane_key, chains[i])
      end
    end
  end
end

local function bury(lane_key, member, message)
  redis.call('XADD', DEAD, '*', 'member', member, 'reason', 'Unknown', 'message',
    message .. ', found when the index was cut anew')
  redis.call('ZREM', lane_key, member)
  redis.call('ZREM', OCC, member)
  redis.call('HDEL', OCCREC, member)
  buried = buried + 1
end

local function take_followers(group)
  local lane, lane_key, bucket = group[1], KEYS[group[2]], KEYS[group[3]]
  for i = group[4], group[5] do
    local member = ARGV[i]
    local id = string.sub(member, 1, 8)
    local score = redis.call('ZSCORE', lane_key, member)
    local record = redis.call('HGET', bucket, id)
    if not score then
      -- gone meanwhile
    elseif is_held(score) or is_moving(id, redis.call('HGET', LEASES, mark_of(id))) then
      left_out = left_out + 1
    elseif record and is_readable(record) then
      left_out = left_out + 1 -- goes with its definition
    elseif record then
      bury(lane_key, member, 'the definition of its schedule cannot be read')
    elseif #member < OCCURRENCE_LENGTH then
      bury(lane_key, member, 'a point without a schedule')
    else
      local triples = free_occurrences(lane_key, { member })
      if #triples > 0 then
        note(lane, group[3], id, '', '', triples)
      end
    end
  end
end

for _, group in ipairs(args.schedules) do
  take_schedules(group)
end
for _, group in ipairs(args.followers) do
  take_followers(group)
end

local key_of = {}
for _, groups in ipairs({ args.schedules, args.followers }) do
  for _, group in ipairs(groups) do
    key_of[group[1]] = KEYS[group[2]]
  end
end
for _, one in ipairs(taken) do
  for i = 1, #one[6], 3 do
    redis.call('ZREM', key_of[one[1]], one[6][i])
  end
end
for lane, key in pairs(key_of) do
  refresh_head(HEADS, lane, key)
end
if #taken > 0 then
  local batch, marked = ARGV[args.batch], {}
  for _, one in ipairs(taken) do
    marked[#marked + 1] = mark_of(one[3])
    marked[#marked + 1] = batch
  end
  redis.call('HSET', LEASES, batch, pack_move(taken), unpack(marked))
  redis.call('ZADD', CLAIMS, now + MOVE_PATIENCE, batch)
end
return { left_out, taken, buried }
