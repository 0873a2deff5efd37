#!lua
--[[
  Schedules of a draining shard are on their way to another one: their points cannot be claimed any more, and
  their edits have to wait. What a worker holds stays: a schedule whose chain is claimed (of one whose runs are
  counted: anything) is left out, a claimed occurrence follows later. All of it is noted under the batch, so
  that a worker that finds the move unfinished after five seconds finishes it. Definitions, and the list of
  occurrences, stay readable here until `forget`. What stands in the band of claims without a claim is not held:
  a chain goes without its due, which the sweep finds again, an occurrence is due at its slot. Points whose
  definition cannot be read are buried. Nothing leaves a shard in doubt: the new one has not gone back, and would
  hand out what waits for the leader.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, most (occurrences), latest (us after now that no lease can end), batch (position; 16 bytes),
        schedules {{lane, lane key, bucket key, from, to}}: ids in ARGV; their definitions go,
        followers {{lane, lane key, bucket key, from, to}}: members in ARGV whose definition has
          gone before; a chain among them has no schedule and is buried
  Reply {left out for now, {taken schedule (takenbatch.lua) ...}, buried}: nothing is noted when nothing was taken
  Error WRONGLAYOUT (also: does not drain), OOM
]]
-- keys meta heads claims leases occ occrec dead
-- include shard
-- include fenced
-- include time
-- include heads
-- include record
-- include occurrences
-- include definition
-- include moves

if shard_state ~= 'draining' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and gives nothing away')
end

local left_out, taken, buried, room = 0, {}, 0, args.most
if meta[8] then
  for _, groups in ipairs({ args.schedules, args.followers }) do
    for _, group in ipairs(groups) do
      left_out = left_out + group[5] - group[4] + 1
    end
  end
  return { left_out, taken, buried }
end
local has_occurrences = redis.call('ZCARD', OCC) > 1
local now = server_time()

-- Whether a claim has a point with this score. A lease that ends later than any can was written
-- while the server's clock was wrong.
local function is_held(score)
  local token = tonumber(score) - CLAIMED
  return token >= 0 and token <= now + args.latest
    and redis.call('ZCOUNT', CLAIMS, digits(token), digits(token)) > 0
end

-- When a point that no claim holds is due; '' of a chain that does not say so.
local function due_of(member, score)
  local due = tonumber(score)
  if due < 0 or due >= CLAIMED then
    due = due_before({}, member, now)
  end
  return due and digits(math.floor(due)) or ''
end

-- Whether a batch that is on its way has it. A mark without its batch is stale, and goes.
local function is_moving(id, batch)
  if not batch or redis.call('ZSCORE', CLAIMS, batch) then
    return batch
  end
  redis.call('HDEL', LEASES, mark_of(id))
  return false
end

-- Takes a schedule (or what follows it: without record and due) with its occurrences among these members that no
-- claim holds, as many as there is room for; stale entries of the list go.
local function take(group, id, record, due, members)
  local lane_key, triples, gone = KEYS[group[2]], {}, {}
  local scores = #members > 0 and redis.call('ZMSCORE', lane_key, unpack(members)) or {}
  local records = #members > 0 and redis.call('HMGET', OCCREC, unpack(members)) or {}
  for i, member in ipairs(members) do
    if scores[i] and room > 0 and not is_held(scores[i]) then
      room = room - 1
      gone[#gone + 1] = member
      triples[#triples + 1], triples[#triples + 2] = member, due_of(member, scores[i])
      triples[#triples + 1] = records[i] or ''
    end
  end
  if #gone > 0 then
    redis.call('ZREM', lane_key, unpack(gone))
  end
  if record ~= '' or #triples > 0 then
    taken[#taken + 1] = { group[1], group[3], id, record, due, triples }
  end
end

-- Whether a worker holds an occurrence, whose start would be counted in the definition. Ten thousand
-- slots may wait, so what is held in the lane is looked at instead, once for all its schedules; where
-- that is very much, the slots. Of a batch so many in all; what is left goes with another one.
local MOST_AT_A_TIME, MOST_LOOKED_AT, MOST_HELD = 1000, 2000, 5000 -- unpack() carries 7,900
local looked_at, held_in = 0, {}

local function holders_in(lane_key)
  local held, of_score = {}, {}
  local band = redis.call('ZRANGE', lane_key, digits(CLAIMED), '(+inf', 'BYSCORE', 'WITHSCORES')
  for i = 1, #band, 2 do
    local score = band[i + 1]
    if of_score[score] == nil then
      of_score[score] = is_held(score)
    end
    if of_score[score] and #band[i] > CHAIN_LENGTH then
      held[string.sub(band[i], 1, ID_LENGTH)] = true
    end
  end
  return held
end

local function is_any_held(id, lane_key)
  local from, to = range_of(id)
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
  if not held_in[lane_key] then
    local held = redis.call('ZCOUNT', lane_key, digits(CLAIMED), '(+inf')
    if looked_at > 0 and looked_at + held > MOST_LOOKED_AT then
      return held > 0
    end
    looked_at = looked_at + held
    if held > MOST_HELD then
      return is_any_held(id, lane_key)
    end
    held_in[lane_key] = holders_in(lane_key)
  end
  return held_in[lane_key][id]
end

local function take_schedules(group)
  local lane_key = KEYS[group[2]]
  local ids, chains, found, marks = {}, {}, {}, {}
  for i, record in ipairs(redis.call('HMGET', KEYS[group[3]], unpack(ARGV, group[4], group[5]))) do
    if record then
      local id = ARGV[group[4] + i - 1]
      ids[#ids + 1], found[#found + 1] = id, record
      chains[#chains + 1], marks[#marks + 1] = id .. version_of(record), mark_of(id)
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
      local may_take = has_occurrences and room > 0 -- else they follow
      take(group, id, found[i], due, may_take and occurrences_of(id, room) or {})
      if scores[i] then
        redis.call('ZREM', lane_key, chains[i])
      end
    end
  end
end

local function bury(lane_key, member, message)
  redis.call('XADD', DEAD, '*', 'member', member, 'reason', 'Unknown', 'message',
    message .. ', found when the index was cut anew')
  drop_occurrences(lane_key, { member })
  buried = buried + 1
end

local function take_followers(group)
  local lane_key, bucket = KEYS[group[2]], KEYS[group[3]]
  for i = group[4], group[5] do
    local member = ARGV[i]
    local id = string.sub(member, 1, ID_LENGTH)
    local score, record = redis.call('ZSCORE', lane_key, member), redis.call('HGET', bucket, id)
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
      take(group, id, '', '', { member })
    end
  end
end

for _, group in ipairs(args.schedules) do
  take_schedules(group)
  refresh_head(group[1], KEYS[group[2]])
end
for _, group in ipairs(args.followers) do
  take_followers(group)
  refresh_head(group[1], KEYS[group[2]])
end
if #taken > 0 then
  local batch, marked = ARGV[args.batch], {}
  for _, schedule in ipairs(taken) do
    marked[#marked + 1], marked[#marked + 2] = mark_of(schedule[3]), batch
  end
  redis.call('HSET', LEASES, batch, cmsgpack.pack({ 1, taken }), unpack(marked))
  redis.call('ZADD', CLAIMS, now + MOVE_PATIENCE, batch)
end
return { left_out, taken, buried }
