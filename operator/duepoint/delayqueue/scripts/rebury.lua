#!lua flags=allow-oom
--[[
  Dead letters of a former shard lie here now; those at or before the last one that came from there change
  nothing. They keep their ids, which show when they were buried, where no later one is here.

  ARGV  layout, epoch, source (text: the former shard), letters {{id, from, to}}: text, fields in
        ARGV; oldest first
  Reply letters buried
]]
-- keys meta dead imported letters letter_sums
-- include shard
-- include fenced
-- include deadletters

local buried = 0
for _, letter in ipairs(args.letters) do
  local id, fields = letter[1], { unpack(ARGV, letter[2], letter[3]) }
  if redis.call('SADD', IMPORTED, 'dead ' .. args.source .. ' ' .. id) == 1 then
    local entry = redis.pcall('XADD', DEAD, id, unpack(fields))
    if entry.err then
      entry = redis.call('XADD', DEAD, '*', unpack(fields))
    end
    count_letter(entry, fields)
    buried = buried + 1
  end
end
return buried
