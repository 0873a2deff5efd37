#!lua flags=allow-oom
--[[
  Dead letters of a former shard lie here now; those up to the last one that came from there change nothing. They
  keep their ids, which show when they were buried, where no later one is here.

  ARGV  layout, epoch, source (text: the former shard), letters {{id, from, to}}: text, fields in
        ARGV; oldest first
  Reply OK
]]
-- keys meta dead letters letter_sums
-- include shard
-- include fenced
-- include deadletters

local last, first = redis.call('HGET', META, 'reburied'), 1
for i, letter in ipairs(args.letters) do
  if args.source .. ' ' .. letter[1] == last then
    first = i + 1
  end
end
for i = first, #args.letters do
  local letter = args.letters[i]
  local fields = { unpack(ARGV, letter[2], letter[3]) }
  local entry = redis.pcall('XADD', DEAD, letter[1], unpack(fields))
  if entry.err then
    entry = redis.call('XADD', DEAD, '*', unpack(fields))
  end
  count_letter(entry, fields)
  redis.call('HSET', META, 'reburied', args.source .. ' ' .. letter[1])
end
return 'OK'
