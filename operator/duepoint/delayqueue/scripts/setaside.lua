#!lua flags=allow-oom
--[[
  Slots that wait for others, on a server that went back, wait to be compared, whenever they are due: they may have been
  called up before. Those that a claim holds, or that were compared, are left alone.

  KEYS  then lanes
  ARGV  layout, epoch, lanes {lane, ...}: in the order of KEYS,
        members {{from, to}, ...}: positions of the occurrences of each lane
  Reply {set aside}
]]
-- keys meta heads claims runs
-- include shard
-- include fenced
-- include rescoring
-- include suspects
-- include heads

local back, count = tonumber(meta[6]), 0
if not back then
  return { 0 }
end
for i, lane in ipairs(args.lanes) do
  local lane_key, from, to = KEYS[4 + i], args.members[i][1], args.members[i][2]
  local waiting = {}
  for j, score in ipairs(redis.call('ZMSCORE', lane_key, unpack(ARGV, from, to))) do
    local member = ARGV[from + j - 1]
    if score and tonumber(score) < CLAIMED and must_wait(member, tonumber(score), back) then
      waiting[#waiting + 1] = member
    end
  end
  if #waiting > 0 then
    add_held()
    rescore(lane_key, waiting, 1, CLAIMED + HELD_TOKEN)
    refresh_head(lane, lane_key)
    count = count + #waiting
  end
end
return { count }
