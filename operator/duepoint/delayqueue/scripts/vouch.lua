#!lua flags=allow-oom
--[[
  A part of what was found out about runs of a schedule is written down, before `admit` is told the
  rest: a list of many Jobs is then not one long script.

  KEYS  1 meta  2 active  3 looks
  ARGV  layout, look (number of the reply that asked, or 0: a look that begins now),
        over {from, to} of run, value pairs: runs that have ended,
        seen {from, to} of run, value pairs: active Jobs,
        verified {from, to} of runs: looked at, and active
  Reply {look}
  Error UNINIT, WRONGLAYOUT
]]
-- include meta
-- include heads
-- include active

local META, RUNS, LOOKS = unpack(KEYS)
local refused = refusal(META)
if refused then
  return refused
end
if not is_whole(RUNS, LOOKS) then
  return { args.look } -- `admit` makes it anew
end
local look = begin_look(RUNS, LOOKS, args.look)
learn(RUNS, LOOKS, look, args.over, args.seen, args.verified)
return { look }
