#!lua flags=allow-oom
--[[
  Dead letters of a former shard lie here now; those at or before the last one that came from there
  change nothing. They keep their ids, which tell when they were buried, where no later one is here.

  KEYS  1 meta  2 dead  3 imported  4 order  5 sums (`includes/letters.lua`)
  ARGV  layout, epoch, source (text: the former shard), letters {{id, from, to}}: text, fields in
        ARGV; oldest first
  Reply letters buried
  Error UNINIT, WRONGLAYOUT, FENCED
]]
-- include meta
-- include letters

local META, DEAD, IMPORTED, ORDER, SUMS = unpack(KEYS)
local refused = fenced_refusal(META)
if refused then
  return refused
end

local function bury(id, from, to)
  local mark = 'dead ' .. args.source .. ' ' .. id
  if redis.call('SADD', IMPORTED, mark) == 0 then
    return 0
  end
  local entry = redis.pcall('XADD', DEAD, id, unpack(ARGV, from, to))
  if entry.err then
    entry = redis.call('XADD', DEAD, '*', unpack(ARGV, from, to))
  end
  count_letter(ORDER, SUMS, entry, { unpack(ARGV, from, to) })
  return 1
end

local buried = 0
for _, letter in ipairs(args.letters) do
  buried = buried + bury(letter[1], letter[2], letter[3])
end
return buried
