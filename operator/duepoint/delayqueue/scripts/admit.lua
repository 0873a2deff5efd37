#!lua flags=allow-oom
--[[
  May a claimed slot start beside the active runs of its schedule? If so it is one of them from here
  on, by the same script; so whatever the number of workers, no more than `most` are let in. A run
  that was let in before is let in again. What is believed of Jobs is never enough to refuse a slot:
  the caller is asked to look at them first, and says what it has found with the next call; where
  there are many it is asked several times, for a piece of them each.

  KEYS  1 meta  2 heads  3 claims  4 leases  5 occ  6 occrec  7 wake  8 lane  9 active  10 looks
        11 waiting (with policy Queue)
  ARGV  layout, lane (number), id, member, value (what the run is, `includes/active.lua`): positions,
        version (position; of the schedule's timing), policy (Allow, Forbid, Replace, Queue),
        most (runs), is_job (bool), mark (what the set has to be complete for),
        listed (the mark of a reply `unknown` after which the Jobs were listed, or ''),
        checked (bool: the run's own Job does not exist), blind (bool: the Jobs cannot be asked for),
        look (number of the reply `unknown` or `check` that began the asking, or 0),
        piece (runs in one reply, at most),
        seen {from, to} of run, value pairs: active Jobs,
        over {from, to} of run, value pairs: runs that have ended,
        verified {from, to} of runs: looked at, and active;
        with Queue: limit (slots), due (us, of a slot that waits), queued, record: positions of the
          member that stands for it while it waits and of its record (0: that stays)
  Reply {'in', {run, value, ...} of the Jobs that it replaces; as many as fit: when they are gone,
          ask again}
        {'forbidden'} | {'waits'} (it is not the claim's any more) | {'full'} (too many wait)
        {'replaced'} (by a newer one) | {'lost'} (not held)
        {'unknown', {}, look, mark}: list the Jobs
        {'check', {run, value, ...}, look}: look at these and at its own
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include time
-- include heads
-- include claims
-- include active
-- include waiting

local META, HEADS, CLAIMS, LEASES, OCC, OCCREC, WAKE, LANE, RUNS, LOOKS, WAITING = unpack(KEYS)
local RETRY = 1
local MOST_LOOKED_AT = 1000 -- occurrences of one schedule in one script
local MOST_PIECES = 2 -- in one script, where nobody has to be asked about what is in them

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
  local last, waiting = '[' .. schedule .. string.rep('\255', 18), {}
  for _, other in ipairs(redis.call('ZRANGE', OCC, '[' .. schedule, last, 'BYLEX', 'LIMIT', 0,
    MOST_LOOKED_AT)) do
    local kind, field = string.byte(other, 13), string.sub(other, 14)
    if kind == RETRY and not args.is_job and redis.call('HEXISTS', RUNS, field) == 0 then
      put_run(RUNS, LOOKS, field, ACTIVE .. 'W' .. string.sub(other, 9, 12))
    elseif kind == QUEUED and WAITING then
      waiting[#waiting + 1] = number(struct.unpack('>I8', string.sub(other, 14, 21)))
      waiting[#waiting + 1] = other
    end
  end
  if #waiting > 0 then
    redis.call('ZADD', WAITING, unpack(waiting))
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
  begin_set(RUNS, LOOKS)
  redis.call('HSET', RUNS, '', mark)
  return true
end

local function keep()
  redis.call('EXPIRE', RUNS, KEPT_SECONDS)
  redis.call('EXPIRE', LOOKS, KEPT_SECONDS)
end

if not is_whole(RUNS, LOOKS) then
  redis.call('EXPIRE', RUNS, 0)
  redis.call('EXPIRE', LOOKS, 0)
end
local look = 0
if args.policy ~= 'Allow' then
  look = begin_look(RUNS, LOOKS, args.look)
  keep()
end
learn(RUNS, LOOKS, look, args.over, { 1, 0 }, { 1, 0 })
local complete, mark = true, nil
if args.policy ~= 'Allow' then
  complete, mark = is_complete()
  if not complete and not args.blind then
    return { 'unknown', {}, look, mark }
  end
end
learn(RUNS, LOOKS, look, { 1, 0 }, args.seen, args.verified)
if WAITING then
  redis.call('ZADD', WAITING, '+inf', '')
  redis.call('EXPIRE', WAITING, KEPT_SECONDS)
end

-- The next piece of the runs that nobody has looked at since the asking began. Those that are being
-- tried are active; a delivery that is not has ended; of a Job nobody here can say.
local function look_at_piece()
  local fields = redis.call('ZRANGE', LOOKS, 0, '(' .. number(look), 'BYSCORE', 'LIMIT', 0, args.piece)
  local suspects, active, over = {}, {}, {}
  if #fields == 0 then
    return suspects
  end
  local values = redis.call('HMGET', RUNS, unpack(fields))
  local tried = tried_scores(LANE, schedule, fields, values)
  for i, field in ipairs(fields) do
    if tried[i] then
      active[#active + 1], active[#active + 2] = number(look), field
    elseif is_of_job(values[i]) then
      suspects[#suspects + 1], suspects[#suspects + 2] = field, values[i]
    else
      over[#over + 1] = field
    end
  end
  if #active > 0 then
    redis.call('ZADD', LOOKS, 'XX', unpack(active))
  end
  if #over > 0 then
    redis.call('ZREM', LOOKS, unpack(over))
    redis.call('HDEL', RUNS, unpack(over))
  end
  return suspects
end

local function count_unsure()
  return redis.call('ZCOUNT', LOOKS, 0, '(' .. number(look))
end

-- What was replaced or one too many, and is not tried any more, has ended.
local function drop_done()
  local fields = redis.call('ZRANGE', LOOKS, number(DONE), number(DONE), 'BYSCORE', 'LIMIT', 0, args.piece)
  if #fields == 0 then
    return
  end
  local tried = tried_scores(LANE, schedule, fields, redis.call('HMGET', RUNS, unpack(fields)))
  for i, field in ipairs(fields) do
    if not tried[i] then
      drop_run(RUNS, LOOKS, field)
    end
  end
end

-- Runs whose Jobs are still to be deleted.
local function replaced_runs()
  local fields = redis.call('ZRANGE', LOOKS, number(GOING), number(GOING), 'BYSCORE', 'LIMIT', 0, args.piece)
  local found = {}
  for i, known in ipairs(#fields > 0 and redis.call('HMGET', RUNS, unpack(fields)) or {}) do
    if fields[i] ~= run then
      found[#found + 1], found[#found + 2] = fields[i], known
    end
  end
  return found
end

-- -- what is decided --------------------------------------------------------------------------

-- Others that wait, as far as they are looked at, when they are due, and how many of all are older.
local function waiting_others(most)
  local members, scores = waiting_members(WAITING, LANE, version, now, most)
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
  if #members == most and older == #others then
    older = redis.call('ZCOUNT', WAITING, '-inf', '(' .. number(struct.unpack('>I8', own)))
  end
  return others, at, older
end

-- As many of those that wait as there is room for have their turn.
local function call_up(room)
  local most = math.min(room, MOST_CALLED)
  if most > 0 then
    local members, scores = waiting_members(WAITING, LANE, version, now, most)
    for i = 1, #members do
      hasten(LANE, members[i], scores[i], now)
    end
  end
end

local function enter()
  put_run(RUNS, LOOKS, run, value)
  keep()
  if WAITING then
    redis.call('ZREM', WAITING, member)
    if count_waiting(WAITING) > 0 then
      look_at_piece()
      call_up(args.most - count_active(LOOKS))
    end
  end
  return { 'in', {} }
end

-- Those that are active go, a piece at a time; with the last of them it is let in.
local function replace()
  local fields = redis.call('ZRANGE', LOOKS, 0, '(' .. number(GOING), 'BYSCORE', 'LIMIT', 0, args.piece)
  local values = #fields > 0 and redis.call('HMGET', RUNS, unpack(fields)) or {}
  local at, members = tried_scores(LANE, schedule, fields, values)
  local marked, order = {}, {}
  for i, field in ipairs(fields) do
    local known = REPLACED .. string.sub(values[i], 2)
    marked[#marked + 1], marked[#marked + 2] = field, known
    order[#order + 1], order[#order + 2] = number(place_of_run(known)), field
    if at[i] then
      hasten(LANE, members[i], at[i], now)
    end
  end
  if #fields > 0 then
    redis.call('HSET', RUNS, unpack(marked))
    redis.call('ZADD', LOOKS, unpack(order))
  end
  if count_active(LOOKS) > 0 then
    announce()
    return { 'check', {}, look }
  end
  put_run(RUNS, LOOKS, run, value)
  keep()
  announce()
  return { 'in', replaced_runs() }
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
  redis.call('ZADD', WAITING, number(struct.unpack('>I8', string.sub(queued, 14, 21))), queued)
end

local function count_surplus(room)
  local own = redis.call('ZSCORE', WAITING, member) and 0 or 1
  return count_waiting(WAITING) + own - args.limit - math.max(room, 0)
end

-- Too many wait: the oldest go, and this slot with them if it is one of those. Those that there is
-- room for wait for nothing but their turn.
local function make_room(room)
  if count_surplus(room) <= 0 then
    return true
  end
  local others, scores, older = waiting_others(MOST_WAITING) -- without those that wait no more
  local surplus = count_surplus(room)
  local stays = older >= surplus
  local most = math.min(stays and surplus or surplus - 1, MOST_CALLED, #others)
  for i = 1, most do
    local run_of, from = string.sub(others[i], 14), string.sub(others[i], 9, 12)
    put_run(RUNS, LOOKS, run_of, SURPLUS .. string.sub(value, 2, 2) .. from)
    redis.call('ZREM', WAITING, others[i])
    hasten(LANE, others[i], scores[i], now)
  end
  return stays
end

local function wait(room)
  local stays = make_room(room)
  if stays then
    put_aside()
  else
    redis.call('ZREM', WAITING, member)
  end
  call_up(room)
  keep()
  return { stays and 'waits' or 'full' }
end

local function replace_others()
  for _ = 1, MOST_PIECES do
    if #look_at_piece() > 0 then
      break
    end
  end
  if count_active(LOOKS) > 0 and not args.checked then
    return { 'check', {}, look }
  end
  return replace()
end

-- Beside others, where there is room for it and for the older ones that wait.
local function beside_others()
  local older = 0
  if WAITING then
    older = select(3, waiting_others(args.piece))
  end
  local room, unsure, suspects = args.most - count_active(LOOKS), 0, {}
  for _ = 1, MOST_PIECES do
    unsure = count_unsure()
    if room > older or room + unsure <= older or unsure == 0 or #suspects > 0 then
      break
    end
    suspects = look_at_piece()
    room, unsure = args.most - count_active(LOOKS), count_unsure()
  end
  if complete and room > older then
    return enter()
  end
  local doubtful = room + unsure > older and unsure > 0
  if not args.blind and (doubtful or not args.checked) then
    return { 'check', doubtful and suspects or {}, look }
  end
  if args.policy == 'Forbid' then
    return { 'forbidden' }
  end
  return wait(complete and room or 0)
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
      reply[2] = replaced_runs()
    end
    return reply
  elseif args.policy == 'Allow' then
    return enter()
  end
  drop_done()
  if args.policy == 'Replace' then
    return replace_others()
  end
  return beside_others()
end

local reply = decide()
if WAITING then
  announce()
end
return reply
