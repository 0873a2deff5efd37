#!lua flags=allow-oom
--[[
  Store records of runs, and remove the outcomes that they include: both or neither. Runs on a full server.

  ARGV  layout, epoch, behind (text: the records include the entries of `runs` before this id; absent: none), records
        {from, to} of name, record pairs, shown {from, to} of names whose statuses show their records: remove these
  Reply OK
]]
-- keys meta runs ledger
-- include shard
-- include fenced
local TOGETHER = 1000 -- arguments of one command

local function in_parts(command, range)
  for first = range[1], range[2], TOGETHER do
    redis.call(command, LEDGER, unpack(ARGV, first, math.min(first + TOGETHER - 1, range[2])))
  end
end

in_parts('HDEL', args.shown)
in_parts('HSET', args.records)
if args.behind then
  redis.call('XTRIM', RUNS, 'MINID', args.behind)
end
return 'OK'
