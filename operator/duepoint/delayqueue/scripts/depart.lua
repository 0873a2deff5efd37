#!lua flags=allow-oom
--[[
  Begin to move a batch of schedules from a draining shard: their points cannot be claimed any more, and edits of them wait.
  Their records stay here, readable, until a call says that the batch has arrived; that call removes it and may be repeated.
  Until then each call answers with this batch. A schedule leaves whole; if a worker holds any of its points, it is left out.
  A chain whose claim does not exist leaves without its due, which the sweep finds again; such an occurrence is due at its slot.
  Nothing leaves a shard in doubt: the new one has not rolled back, and would hand out points that must wait for the leader.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, batch (text: a name for it), most (occurrences, after which no other schedule is taken),
        latest (us after now that no lease can end), schedules {{lane, lane key, bucket key, from, to}}: ids in ARGV,
        arrived (text: the batch that has arrived; absent: none), buckets {{key, from, to}} of its schedules: ids in ARGV
  Reply {left out, not tried, batch, {{lane, id, record, due or '', {member, due, ...}} ...}}: the last two are the moving batch
  Error WRONGLAYOUT (also: does not drain)
]]
-- keys meta heads claims leases occ occrec
-- include shard
-- include fenced
-- include time
-- include heads
-- include record
-- include occurrences
-- include definition
-- include moves

local function end_batch()
  local batch, taken = cmsgpack.unpack(redis.call('HGET', LEASES, BATCH) or cmsgpack.pack(''))
  if batch ~= args.arrived then
    return
  end
  for _, bucket in ipairs(args.buckets) do
    redis.call('HDEL', KEYS[bucket[1]], unpack(ARGV, bucket[2], bucket[3]))
  end
  for _, schedule in ipairs(taken) do
    local lane, id, points = schedule[1], schedule[2], schedule[5]
    if is_of_set(lane) then
      redis.call('HINCRBY', META, 'c' .. lane, -1)
    end
    for i = 1, #points, 2 do
      forget_occurrences({ points[i] })
    end
    redis.call('HDEL', LEASES, mark_of(id))
  end
  redis.call('HDEL', LEASES, BATCH)
end

if args.arrived then
  end_batch()
  return { 0, 0, '', {} }
end
if shard_state ~= 'draining' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and gives nothing away')
end

local MOST_LOOKED_UP = 4000 -- unpack() carries 7,900 values
local now, rest, left_out, taken, room = server_time(), 0, 0, {}, args.most
for _, group in ipairs(args.schedules) do
  rest = rest + group[5] - group[4] + 1
end
if meta[8] then
  return { rest, 0, '', taken }
end
local on_its_way = redis.call('HGET', LEASES, BATCH)
if on_its_way then
  local batch, schedules = cmsgpack.unpack(on_its_way)
  return { 0, rest, batch, schedules }
end
local has_occurrences = redis.call('ZCARD', OCC) > 1 -- one is the sentinel

-- Whether a claim holds a point with this score. A lease that ends later than any valid one was written while the
-- server's clock was wrong.
local function is_held(score)
  local token = tonumber(score) - CLAIMED
  return token >= 0 and token <= now + args.latest
    and redis.call('ZCOUNT', CLAIMS, digits(token), digits(token)) > 0
end

local function due_of(member, score)
  local due = tonumber(score)
  if due < 0 or due >= CLAIMED then
    due = due_before({}, member, now)
  end
  return due and digits(math.floor(due)) or ''
end

-- Returns the occurrences of a schedule, with their dues; nil if a worker holds one. Those in no lane are left out.
local function waiting(id, lane_key)
  local members, found = has_occurrences and occurrences_of(id, -1) or {}, {}
  for first = 1, #members, MOST_LOOKED_UP do
    local last = math.min(first + MOST_LOOKED_UP - 1, #members)
    for i, score in ipairs(redis.call('ZMSCORE', lane_key, unpack(members, first, last))) do
      local member = members[first + i - 1]
      if score and is_held(score) then
        return nil
      elseif score then
        found[#found + 1], found[#found + 2] = member, due_of(member, score)
      end
    end
  end
  return found
end

-- Takes a schedule out; returns whether it could leave.
local function take(lane, lane_key, id, record)
  local chain = id .. version_of(record)
  local score = redis.call('ZSCORE', lane_key, chain)
  local occurrences = not (score and is_held(score)) and waiting(id, lane_key)
  if not occurrences then
    return false
  end
  redis.call('ZREM', lane_key, chain)
  for i = 1, #occurrences, 2 do
    redis.call('ZREM', lane_key, occurrences[i])
  end
  taken[#taken + 1] = { lane, id, record, score and due_of(chain, score) or '', occurrences }
  room = room - #occurrences / 2
  return true
end

for _, group in ipairs(args.schedules) do
  if room > 0 then
    for i, record in ipairs(redis.call('HMGET', KEYS[group[3]], unpack(ARGV, group[4], group[5]))) do
      if room > 0 then
        rest = rest - 1
        if record and not take(group[1], KEYS[group[2]], ARGV[group[4] + i - 1], record) then
          left_out = left_out + 1
        end
      end
    end
    refresh_head(group[1], KEYS[group[2]])
  end
end
if #taken > 0 then
  local marks = {}
  for _, schedule in ipairs(taken) do
    marks[#marks + 1], marks[#marks + 2] = mark_of(schedule[2]), ''
  end
  redis.call('HSET', LEASES, BATCH, cmsgpack.pack(args.batch, taken), unpack(marks))
end
return { left_out, rest, args.batch, taken }
