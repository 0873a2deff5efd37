-- include members
-- A server that rolled back holds an older state: points that were due before may have run already. Fields of `meta`: `server`:
-- run id of the process that was last known to have the newest state, `mark`: a number that each claim raises, `back`: the
-- instant (us) up to which the shard last rolled back, `doubt`: when points were last found that are due by then and that the
-- leader has not checked. While there is a doubt, no such point of a Schedule is handed out (heads.lua).
local function begin_doubt(back, now)
  meta[6], meta[8] = digits(back), digits(now)
  redis.call('HSET', META, 'back', meta[6], 'doubt', meta[8])
  redis.call('XADD', RUNS, '*', 'back', meta[6])
  redis.call('SPUBLISH', args.ran, '')
end

-- Detects whether the server rolled back; returns a reply, or nil. `server` is the run id of the process that runs this, '' if
-- unknown; if the caller has known that process only for a short time, that time (us) follows after a space. `args.mark` is the
-- highest mark that the caller has seen; `args.mark_age` (us) for how long it has known it. No claim was made elsewhere once
-- this process had answered as a primary: points that fell due since then cannot have run. In a cluster a shard may have
-- moved to another server, which loses nothing: the caller finds out whether its former server (`args.former`, a run
-- id) is still a primary (`args.moved`).
local function look_at_server(server, now)
  local stored_server, stored_mark, mark = meta[4], tonumber(meta[5]) or 0, args.mark or 0
  local met
  server, met = string.match(server, '^(%S*) ?(%d*)$')
  met = tonumber(met) or 0
  local has_changed = server ~= '' and stored_server ~= server
  if has_changed and stored_server and stored_server ~= args.former then
    return { 'other', stored_server }
  end
  local went_back = has_changed and stored_server and not args.moved or mark > stored_mark
  if has_changed then
    redis.call('HSET', META, 'server', server)
  end
  if went_back then
    -- A mark younger than `met` was made by this very process, which then rolled back itself: `met` proves nothing then.
    local known_for = met < (args.mark_age or math.huge) and met or 0
    redis.call('HSET', META, 'mark', digits(math.max(mark, stored_mark)))
    -- Use the later of the caller's clock and this server's: being too late only makes more points wait for the leader.
    begin_doubt(math.max(meta[8] and tonumber(meta[6]) or 0, math.max(now, args.cap) - known_for), now)
  end
end
