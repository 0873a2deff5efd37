#!lua flags=allow-oom
--[[
  Store dead letters: those of a former shard, under their own ids, unless they are here already; or those of waiting
  occurrences of a lane, and remove these with their outcomes. An occurrence that a worker holds stays, without a letter.

  KEYS  then log, and lane
  ARGV  layout, epoch (absent: not by the leader), log {key, lane, bytes}: as in settle.lua, letters {{from, to, id (text)}},
        oldest first, or {{from, to, member, outcome}}: fields in ARGV, positions; lane, lane_key, runs_bytes, runs_age
  Reply {lane of each dead letter that was dropped, ...}
]]
-- keys meta heads logs occ occrec runs ran
-- include shard
-- include fenced
-- include runs
-- include log
-- include heads
-- include occurrences

local function bury(member, outcome, fields)
  local score = redis.call('ZSCORE', KEYS[args.lane_key], member)
  if score and tonumber(score) < CLAIMED then
    add_to_log(LOGS, args.log, { 'member', member, unpack(fields) })
    add_outcome(outcome)
    drop_occurrences(KEYS[args.lane_key], { member })
  end
end

for _, letter in ipairs(args.letters) do
  local fields, id = { unpack(ARGV, letter[1], letter[2]) }, letter[3]
  if letter[4] then
    bury(ARGV[letter[3]], ARGV[letter[4]], fields)
  else
    local here = redis.call('XRANGE', KEYS[args.log.key], id, id)[1]
    if not here or table.concat(here[2], '\0', 3) ~= table.concat(fields, '\0') then
      add_to_log(LOGS, args.log, fields, id)
    end
  end
end
report_outcomes()
if args.lane then
  refresh_head(args.lane, KEYS[args.lane_key])
end
return letters_dropped
