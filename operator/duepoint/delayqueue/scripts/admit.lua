#!lua flags=allow-oom
--[[
  May a claimed slot start beside the active runs of its schedule? If so it is one of them from here on, so
  with any number of workers, no more than `most` are let in. A run that was let in before is let in again.
  What is believed of Jobs is never enough to refuse a slot: the reply names those to look at first, and the
  next call says what was found; where there are many, a piece of them at a time.

  KEYS  waiting: with policy Queue only
  ARGV  layout, lane (number), id, member, value (what the run is, active.lua): positions,
        version (position; of the schedule's timing), policy (Allow, Forbid, Replace, Queue),
        most (runs), is_job (bool), mark (what the set has to be complete for),
        listed (the mark of a reply `unknown` after which the Jobs were listed, or ''),
        checked (bool: the run's own Job does not exist), blind (bool: Jobs cannot be looked up), look (number of
        the reply `unknown` or `check` that began the look, or 0), piece (runs in one reply, at most),
        seen, over {from, to} of run, value pairs: active Jobs, and runs that have ended,
        verified {from, to} of runs: looked at, and active;
        with Queue: limit (slots), due (us, of a slot that waits), queued, record: positions of the
          member that stands for it while it waits and of its record (0: that stays)
  Reply {'in', {run, value, ...} of the Jobs that it replaces; as many as fit: when they are gone, call again}
        {'forbidden'} | {'waits'} (it is not the claim's any more) | {'full'} (too many wait)
        {'replaced'} (by a newer one) | {'lost'} (not held)
        {'unknown', {}, look, mark}: list the Jobs
        {'check', {run, value, ...}, look}: look at these and at its own
]]
-- keys meta heads claims leases occ occrec wake lane active looks waiting
-- include shard
local member, value, version = ARGV[args.member], ARGV[args.value], ARGV[args.version]
local schedule, run = string.sub(member, 1, 8), string.sub(member, 14)
-- include wake
-- include occurrences
-- include waiting
-- include callersclaim

local SURPLUS = 'F'
local KEPT_SECONDS = 86400
local GOING = digits(2 ^ 51) -- replaced, and its Job is to be deleted
local DONE = digits(2 ^ 51 + 1) -- replaced or one too many: it ends with its occurrence
local SLOT_LENGTH, FOREIGN = 8, 255 -- a regular run is a slot; of a user's Job that names none, the first byte
local MOST_LOOKED_AT = 1000 -- occurrences of one schedule in one script
local MOST_PIECES = 2 -- in one script, where no Job has to be looked up for what is in them

local score = token and redis.call('ZSCORE', LANE, member)
if not score or tonumber(score) ~= band then
  return { 'lost' }
end
local now, before = server_time(), shard_head()

local function announce()
  refresh_head(args.lane, LANE)
  announce_head(before, now)
end

-- -- what is known ----------------------------------------------------------------------------

local function place_of_run(known)
  if state_of_run(known) == RUNNING then
    return 0
  end
  return state_of_run(known) == REPLACED and is_of_job(known) and GOING or DONE
end

local function put_run(field, known)
  begin_set()
  redis.call('HSET', ACTIVE, field, known)
  redis.call('ZADD', LOOKS, place_of_run(known), field)
end

local function count_active()
  return redis.call('ZCOUNT', LOOKS, 0, '(' .. GOING)
end

-- Deliveries that are tried again are active; slots that wait, wait.
local function rebuild()
  local waiting = {}
  for _, other in ipairs(occurrences_of(schedule, MOST_LOOKED_AT)) do
    local kind, field = string.byte(other, KIND_POSITION), string.sub(other, 14)
    if kind == RETRY and not args.is_job and redis.call('HEXISTS', ACTIVE, field) == 0 then
      put_run(field, RUNNING .. 'W' .. string.sub(other, 9, 12))
    elseif kind == QUEUED and WAITING then
      waiting[#waiting + 1], waiting[#waiting + 2] = digits(slot_of(other)), other
    end
  end
  if #waiting > 0 then
    redis.call('ZADD', WAITING, unpack(waiting))
  end
end

-- Whether the set has all runs, made again where that needs nothing of the caller; and the mark.
local function is_complete()
  local history = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
  local mark = history .. ' ' .. args.mark
  if redis.call('HGET', ACTIVE, '') == mark then
    return true
  end
  if args.is_job and args.listed ~= mark then
    return false, mark
  end
  rebuild()
  begin_set()
  redis.call('HSET', ACTIVE, '', mark)
  return true
end

local function keep()
  redis.call('EXPIRE', ACTIVE, KEPT_SECONDS)
  redis.call('EXPIRE', LOOKS, KEPT_SECONDS)
end

if not is_whole() then
  redis.call('EXPIRE', ACTIVE, 0)
  redis.call('EXPIRE', LOOKS, 0)
end
local look, complete, mark = 0, true, nil
if args.policy ~= 'Allow' then
  look = begin_look(args.look)
  keep()
end
record_ended(args.over)
if args.policy ~= 'Allow' then
  complete, mark = is_complete()
  if not complete and not args.blind then
    return { 'unknown', {}, look, mark }
  end
end
record_active(look, args.seen, args.verified)
if WAITING then
  redis.call('ZADD', WAITING, '+inf', '')
  redis.call('EXPIRE', WAITING, KEPT_SECONDS)
end

-- A piece of the runs that stand between two places of the order, and what is known of them.
local function piece_of_runs(from, to)
  local fields = redis.call('ZRANGE', LOOKS, from, to, 'BYSCORE', 'LIMIT', 0, args.piece)
  return fields, #fields > 0 and redis.call('HMGET', ACTIVE, unpack(fields)) or {}
end

-- The next piece of the runs that were not looked at since the asking began. Those that are being
-- tried are active; a delivery that is not has ended; the caller has to look at a Job.
local function look_at_piece()
  local fields, values = piece_of_runs(0, '(' .. digits(look))
  local unsure, active, over = {}, {}, {}
  local tried = tried_scores(fields, values)
  for i, field in ipairs(fields) do
    if tried[i] then
      active[#active + 1], active[#active + 2] = digits(look), field
    elseif is_of_job(values[i]) then
      unsure[#unsure + 1], unsure[#unsure + 2] = field, values[i]
    else
      over[#over + 1] = field
    end
  end
  if #active > 0 then
    redis.call('ZADD', LOOKS, 'XX', unpack(active))
  end
  drop_runs(over)
  return unsure
end

-- What was replaced or one too many, and is not tried any more, has ended.
local function drop_done()
  local fields, values = piece_of_runs(DONE, DONE)
  local tried, over = tried_scores(fields, values), {}
  for i, field in ipairs(fields) do
    if not tried[i] then
      over[#over + 1] = field
    end
  end
  drop_runs(over)
end

-- Runs whose Jobs are still to be deleted.
local function replaced_runs()
  local fields, values = piece_of_runs(GOING, GOING)
  local found = {}
  for i, field in ipairs(fields) do
    if field ~= run then
      found[#found + 1], found[#found + 2] = field, values[i]
    end
  end
  return found
end

-- -- what is decided --------------------------------------------------------------------------

-- Others that wait, as far as they are looked at, when they are due, and how many of all are older.
local function waiting_others(most)
  local members, scores = waiting_members(now, most)
  local others, at, older = {}, {}, 0
  for i, other in ipairs(members) do
    if other ~= member then
      others[#others + 1], at[#at + 1] = other, scores[i]
      if string.sub(other, 14) < run then
        older = older + 1
      end
    end
  end
  if #members == most and older == #others then
    older = redis.call('ZCOUNT', WAITING, '-inf', '(' .. digits(slot_of(member)))
  end
  return others, at, older
end

local function enter()
  put_run(run, value)
  keep()
  if WAITING then
    redis.call('ZREM', WAITING, member)
    if redis.call('ZCOUNT', WAITING, '-inf', '(+inf') > 0 then
      look_at_piece()
      call_up(now, args.most - count_active())
    end
  end
  return { 'in', {} }
end

-- Those that are active go, a piece at a time; with the last of them it is let in.
local function replace()
  local fields, values = piece_of_runs(0, '(' .. GOING)
  local at, members = tried_scores(fields, values)
  local marked, order = {}, {}
  for i, field in ipairs(fields) do
    local known = REPLACED .. string.sub(values[i], 2)
    marked[#marked + 1], marked[#marked + 2] = field, known
    order[#order + 1], order[#order + 2] = place_of_run(known), field
    if at[i] then
      hasten(members[i], at[i], now)
    end
  end
  if #fields > 0 then
    redis.call('HSET', ACTIVE, unpack(marked))
    redis.call('ZADD', LOOKS, unpack(order))
  end
  local reply = { 'check', {}, look }
  if count_active() == 0 then
    put_run(run, value)
    keep()
    reply = { 'in', replaced_runs() }
  end
  announce()
  return reply
end

local function put_aside()
  local queued = ARGV[args.queued]
  if queued ~= member then
    drop_occurrences(LANE, { member })
  end
  redis.call('ZADD', LANE, args.due, queued)
  redis.call('ZADD', OCC, 0, queued)
  if args.record > 0 then
    redis.call('HSET', OCCREC, queued, ARGV[args.record])
  end
  redis.call('HSET', LEASES, id .. ':x', 1)
  redis.call('ZADD', WAITING, digits(slot_of(queued)), queued)
end

local function count_surplus(room)
  local own = redis.call('ZSCORE', WAITING, member) and 0 or 1
  return redis.call('ZCOUNT', WAITING, '-inf', '(+inf') + own - args.limit - math.max(room, 0)
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
    put_run(string.sub(others[i], 14), SURPLUS .. string.sub(value, 2, 2) .. string.sub(others[i], 9, 12))
    redis.call('ZREM', WAITING, others[i])
    hasten(others[i], scores[i], now)
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
  call_up(now, room)
  keep()
  return { stays and 'waits' or 'full' }
end

-- A newer slot has the place already: a slot that comes late, by a catch-up or a retry, does not take it back.
local function is_behind()
  local fields = #run == SLOT_LENGTH and piece_of_runs(0, '(' .. GOING) or {}
  for _, field in ipairs(fields) do
    if #field == SLOT_LENGTH and field > run and string.byte(field) < FOREIGN then
      return true
    end
  end
  return false
end

local function replace_others()
  for _ = 1, MOST_PIECES do
    if #look_at_piece() > 0 then
      break
    end
  end
  if count_active() > 0 and not args.checked then
    return { 'check', {}, look }
  end
  return is_behind() and { 'replaced' } or replace()
end

-- Beside others, where there is room for it and for the older ones that wait.
local function beside_others()
  local older = 0
  if WAITING then
    older = select(3, waiting_others(args.piece))
  end
  local room, unsure, suspects = args.most - count_active(), 0, {}
  for _ = 1, MOST_PIECES do
    unsure = redis.call('ZCOUNT', LOOKS, 0, '(' .. digits(look))
    if room > older or room + unsure <= older or unsure == 0 or #suspects > 0 then
      break
    end
    suspects = look_at_piece()
    room, unsure = args.most - count_active(), redis.call('ZCOUNT', LOOKS, 0, '(' .. digits(look))
  end
  if complete and room > older then
    return enter()
  end
  local is_open = room + unsure > older and unsure > 0
  if not args.blind and (is_open or not args.checked) then
    return { 'check', is_open and suspects or {}, look }
  end
  if args.policy == 'Forbid' then
    return { 'forbidden' }
  end
  return wait(complete and room or 0)
end

local function decide()
  local entered = redis.call('HGET', ACTIVE, run)
  if entered and state_of_run(entered) == REPLACED then
    return { 'replaced' }
  elseif entered and state_of_run(entered) == SURPLUS then
    return { 'full' }
  elseif entered or args.policy == 'Allow' then
    local reply = enter()
    if args.policy == 'Replace' then
      reply[2] = replaced_runs()
    end
    return reply
  end
  drop_done()
  return args.policy == 'Replace' and replace_others() or beside_others()
end

local reply = decide()
if WAITING then
  announce()
end
return reply
