#!lua flags=allow-oom
--[[
  Make a batch of schedules of a draining shard ready to move: no worker can claim their points, and edits of them
  wait. Their records stay here, readable, until `drop` has removed the batch (put.lua). Until then each call answers with
  this batch. A schedule leaves whole; if a worker holds any of its points, it is left out. A chain whose claim does not exist
  leaves without its due, which the sweep finds again; such an occurrence is due at its slot. Nothing leaves a shard in
  doubt: the new one has not rolled back, and would hand out points that must wait for the leader.

  KEYS  then lanes and buckets
  ARGV  layout, epoch, batch (text: a name for it), most (points, after which no other schedule is taken),
        latest (us after now that no lease can end), schedules {{lane, lane key, bucket key, id}}: id a position
  Reply {how many of the schedules were tried, how many of these were left out, batch, {{lane, id, record,
        {member, due, ...}} ...}}: the last two are the batch on its way
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

if shard_state ~= 'draining' then
  return redis.error_reply('WRONGLAYOUT the shard is ' .. shard_state .. ' and not draining')
end
local on_its_way = redis.call('HGET', LEASES, BATCH)
if on_its_way then
  return { 0, 0, cmsgpack.unpack(on_its_way) }
elseif meta[8] then
  return { #args.schedules, #args.schedules, '', {} }
end

local now, tried, taken, room, marks = server_time(), 0, {}, args.most, {}

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
  return due and digits(math.floor(due))
end

-- Returns the points of a schedule with their dues; nil if a worker holds one. Those in no lane are left out.
local function waiting(id, chain, lane_key)
  local members, found = occurrences_of(id, -1), {}
  members[#members + 1] = chain
  for _, member in ipairs(members) do
    local score = redis.call('ZSCORE', lane_key, member)
    if score and is_held(score) then
      return nil
    end
    local due = score and due_of(member, score)
    if due then
      found[#found + 1], found[#found + 2] = member, due
    end
  end
  return found
end

for _, schedule in ipairs(args.schedules) do
  if room <= 0 then
    break
  end
  tried = tried + 1
  local lane, lane_key, id = schedule[1], KEYS[schedule[2]], ARGV[schedule[4]]
  local record = redis.call('HGET', KEYS[schedule[3]], id)
  local chain = record and id .. version_of(record)
  local points = record and waiting(id, chain, lane_key)
  if points then
    redis.call('ZREM', lane_key, chain)
    for i = 1, #points, 2 do
      redis.call('ZREM', lane_key, points[i])
    end
    refresh_head(lane, lane_key)
    taken[#taken + 1] = { lane, id, record, points }
    marks[#marks + 1], marks[#marks + 2] = mark_of(id), ''
    room = room - #points / 2
  end
end
if #taken > 0 then
  redis.call('HSET', LEASES, BATCH, cmsgpack.pack(args.batch, taken), unpack(marks))
end
return { tried, tried - #taken, args.batch, taken }
