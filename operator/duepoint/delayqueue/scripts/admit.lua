#!lua flags=allow-oom
--[[
  May a claimed slot start beside the active runs of its schedule? If so it is one of them from here
  on, by the same script; so whatever the number of workers, no more than `most` are let in. A run
  that was let in before is let in again. What is believed of Jobs is never enough to refuse a slot:
  the caller is asked to look at them first, and says what it has found with the next call.

  KEYS  1 meta  2 heads  3 claims  4 leases  5 occ  6 occrec  7 wake  8 lane  9 active
        10 waiting (with policy Queue)
  ARGV  layout, lane (number), id, member, value (what the run is, `includes/active.lua`): positions,
        version (position; of the schedule's timing), policy (Allow, Forbid, Replace, Queue),
        most (runs), is_job (bool), mark (what the set has to be complete for),
        listed (the mark of a reply `unknown` after which the Jobs were listed, or ''),
        checked (bool: the run's own Job does not exist), blind (bool: the Jobs cannot be asked for),
        seen {from, to} of run, value pairs: active Jobs,
        over {from, to} of run, value pairs: runs that have ended,
        verified {from, to} of runs: looked at, and active;
        with Queue: limit (slots), due (us, of a slot that waits), queued, record: positions of the
          member that stands for it while it waits and of its record (0: that stays)
  Reply {'in', {run, value, ...} of the Jobs that it replaces}
        {'forbidden'} | {'waits'} (it is not the claim's any more) | {'full'} (too many wait)
        {'replaced'} (by a newer one) | {'lost'} (not held)
        {'unknown', mark}: list the Jobs   {'check', {run, value, ...}}: look at these and its own
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include claims
-- include active

local META, HEADS, CLAIMS, LEASES, OCC, OCCREC, WAKE, LANE, RUNS, WAITING = unpack(KEYS)
local RETRY = 1
local MOST_LOOKED_AT = 2000 -- occurrences of one schedule in one script

local refused = refusal(META)
if refused then
  return refused
end
local id, member, value = ARGV[args.id], ARGV[args.member], ARGV[args.value]
local version = ARGV[args.version]
local token = redis.call('ZSCORE', CLAIMS, id)
local score = token and redis.call('ZSCORE', LANE, member)
if not score or tonumber(score) ~= CLAIMED + tonumber(token) then
  return { 'lost' }
end
local schedule, run = string.sub(member, 1, 8), string.sub(member, 14)
local now, before = server_time(), shard_head(HEADS)

local function announce()
  refresh_head(HEADS, args.lane, LANE)
  announce_head(HEADS, before, WAKE, now)
end

-- -- what is known ----------------------------------------------------------------------------

-- Deliveries that are tried again are active; slots that wait, wait.
local function rebuild()
  local last = '[' .. schedule .. string.rep('\255', 18)
  for _, other in ipairs(redis.call('ZRANGE', OCC, '[' .. schedule, last, 'BYLEX', 'LIMIT', 0,
    MOST_LOOKED_AT)) do
    local kind = string.byte(other, 13)
    if kind == RETRY and not args.is_job then
      redis.call('HSETNX', RUNS, string.sub(other, 14), ACTIVE .. 'W' .. string.sub(other, 9, 12))
    elseif kind == QUEUED and WAITING then
      local slot = struct.unpack('>I8', string.sub(other, 14, 21))
      redis.call('ZADD', WAITING, string.format('%.0f', slot), other)
    end
  end
end

local function is_complete()
  local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
  local mark = history .. ' ' .. args.mark
  if redis.call('HGET', RUNS, '') == mark then
    return true
  end
  if args.is_job and args.listed ~= mark then
    return false, mark
  end
  rebuild()
  redis.call('HSET', RUNS, '', mark)
  return true
end

for i = args.over[1], args.over[2], 2 do
  if redis.call('HGET', RUNS, ARGV[i]) == ARGV[i + 1] then
    redis.call('HDEL', RUNS, ARGV[i])
  end
end
local complete, mark = true, nil
if args.policy ~= 'Allow' then
  complete, mark = is_complete()
  if not complete and not args.blind then
    return { 'unknown', mark }
  end
end
for i = args.seen[1], args.seen[2], 2 do
  redis.call('HSETNX', RUNS, ARGV[i], ARGV[i + 1])
end
local verified = {}
for i = args.verified[1], args.verified[2] do
  verified[ARGV[i]] = true
end
if WAITING then
  redis.call('ZADD', WAITING, '+inf', '')
  redis.call('EXPIRE', WAITING, KEPT_SECONDS)
end

-- Runs of the schedule that have an occurrence: tried, to be tried again, or waiting. Where there
-- are too many to be read, each is asked for.
local function runs_tried()
  local tried, last = {}, '[' .. schedule .. string.rep('\255', 18)
  local found = redis.call('ZRANGE', OCC, '[' .. schedule, last, 'BYLEX', 'LIMIT', 0, MOST_LOOKED_AT)
  for _, other in ipairs(found) do
    tried[string.sub(other, 14)] = true
  end
  return tried, #found == MOST_LOOKED_AT
end

-- The runs beside this one: how many count, which of them nobody here can vouch for, which Jobs
-- are still to be deleted. What has certainly ended goes.
local function survey()
  local active, suspects, others, replaced = 0, {}, {}, {}
  local all = redis.call('HGETALL', RUNS)
  local is_tried, are_more = runs_tried()
  for i = 1, #all, 2 do
    local field, known = all[i], all[i + 1]
    if field ~= '' and field ~= run then
      local state, is_job, tried = state_of_run(known), is_of_job(known), is_tried[field]
      if not tried and are_more then
        tried = score_of_run(LANE, schedule, field, known)
      end
      if state == REPLACED and is_job then
        replaced[#replaced + 1], replaced[#replaced + 2] = field, known
      elseif not tried and (state ~= ACTIVE or not is_job) then
        redis.call('HDEL', RUNS, field)
      elseif state == ACTIVE then
        active = active + 1
        others[#others + 1], others[#others + 2] = field, known
        if not tried and not verified[field] then
          suspects[#suspects + 1], suspects[#suspects + 2] = field, known
        end
      end
    end
  end
  return { active = active, suspects = suspects, others = others, replaced = replaced }
end

-- -- what is decided --------------------------------------------------------------------------

local function waiting_others()
  local members, scores = waiting_members(WAITING, LANE, version, now)
  local own = string.sub(member, 14)
  local others, at, older = {}, {}, 0
  for i, other in ipairs(members) do
    if other ~= member then
      others[#others + 1], at[#at + 1] = other, scores[i]
      if string.sub(other, 14) < own then
        older = older + 1
      end
    end
  end
  return others, at, older
end

-- As many of those that wait as there is room for have their turn.
local function call_up(room)
  local members, scores = waiting_members(WAITING, LANE, version, now)
  for i = 1, math.min(room, #members) do
    hasten(LANE, members[i], scores[i], now)
  end
end

local function enter(found)
  redis.call('HSET', RUNS, run, value)
  redis.call('EXPIRE', RUNS, KEPT_SECONDS)
  if WAITING then
    redis.call('ZREM', WAITING, member)
    if redis.call('ZCOUNT', WAITING, '-inf', '(+inf') > 0 then
      call_up(args.most - (found or survey()).active - 1)
    end
  end
  return { 'in', {} }
end

local function replace(found)
  for i = 1, #found.others, 2 do
    local field, known = found.others[i], found.others[i + 1]
    redis.call('HSET', RUNS, field, REPLACED .. string.sub(known, 2))
    if is_of_job(known) then
      table.insert(found.replaced, field)
      table.insert(found.replaced, known)
    end
    local at, other = score_of_run(LANE, schedule, field, known)
    if at then
      hasten(LANE, other, at, now)
    end
  end
  redis.call('HSET', RUNS, run, value)
  redis.call('EXPIRE', RUNS, KEPT_SECONDS)
  announce()
  return { 'in', found.replaced }
end

local function put_aside()
  local queued = ARGV[args.queued]
  if queued ~= member then
    redis.call('ZREM', LANE, member)
    redis.call('ZREM', OCC, member)
    redis.call('HDEL', OCCREC, member)
  end
  redis.call('ZADD', LANE, args.due, queued)
  redis.call('ZADD', OCC, 0, queued)
  if args.record > 0 then
    redis.call('HSET', OCCREC, queued, ARGV[args.record])
  end
  redis.call('HSET', LEASES, id .. ':x', 1)
  local slot = struct.unpack('>I8', string.sub(queued, 14, 21))
  redis.call('ZADD', WAITING, string.format('%.0f', slot), queued)
end

-- Too many wait: the oldest go, and this slot with them if it is one of those. Those that there is
-- room for wait for nothing but their turn.
local function make_room(others, scores, older, room)
  local surplus = #others + 1 - args.limit - math.max(room, 0)
  local stays = older >= surplus
  for i = 1, stays and surplus or surplus - 1 do
    local run_of, from = string.sub(others[i], 14), string.sub(others[i], 9, 12)
    redis.call('HSET', RUNS, run_of, SURPLUS .. string.sub(value, 2, 2) .. from)
    redis.call('ZREM', WAITING, others[i])
    hasten(LANE, others[i], scores[i], now)
  end
  return stays
end

local function wait(room)
  local others, scores, older = waiting_others()
  local stays = make_room(others, scores, older, room)
  if stays then
    put_aside()
  else
    redis.call('ZREM', WAITING, member)
  end
  call_up(room)
  redis.call('EXPIRE', RUNS, KEPT_SECONDS)
  return { stays and 'waits' or 'full' }
end

local function decide()
  local entered = redis.call('HGET', RUNS, run)
  if entered and state_of_run(entered) == REPLACED then
    return { 'replaced' }
  elseif entered and state_of_run(entered) == SURPLUS then
    return { 'full' }
  elseif entered then
    local reply = enter()
    if args.policy == 'Replace' then
      reply[2] = survey().replaced
    end
    return reply
  elseif args.policy == 'Allow' then
    return enter()
  end
  local nobody_waits = not WAITING or #waiting_others() == 0
  if args.policy ~= 'Replace' and complete and nobody_waits
    and redis.call('HLEN', RUNS) - 1 < args.most then
    return enter()
  end
  local found = survey()
  if args.policy == 'Replace' then
    if #found.others > 0 and not args.checked then
      return { 'check', {} }
    end
    return replace(found)
  end
  local room, older = args.most - found.active, 0
  if WAITING then
    older = select(3, waiting_others())
  end
  if complete and room > older then
    return enter(found)
  end
  local doubtful = room + #found.suspects / 2 > older and #found.suspects > 0
  if not args.blind and (doubtful or not args.checked) then
    return { 'check', doubtful and found.suspects or {} }
  end
  if args.policy == 'Forbid' then
    return { 'forbidden' }
  end
  return wait(complete and room or 0)
end

local reply = decide()
if WAITING then
  announce()
end
return reply
