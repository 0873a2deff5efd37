#!lua flags=allow-oom
--[[
  A part of what was found out about runs of a schedule is written down, before `admit` gets the rest: a list of
  many Jobs is then not one long script.

  ARGV  layout, look (as `admit`; 0: a look that begins now), over, seen, verified (as `admit`)
  Reply {look}
]]
-- keys meta active looks
-- include shard
-- include active
if not is_whole() then
  return { args.look } -- `admit` makes it anew
end
local look = begin_look(args.look)
record_ended(args.over)
record_active(look, args.seen, args.verified)
return { look }
