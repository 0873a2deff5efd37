#!lua
--[[
  A dead letter becomes an occurrence that is due now, in one step: the letter is gone when its slot is in the
  queue, and not before. Called again (the reply was lost) it finds no letter and changes nothing. The chain of
  the schedule is left alone.

  KEYS  then dead, letters and letter_sums of the shard of the letter
  ARGV  layout, lane (number), letter (text: id of the entry), id, uid, member, record: positions
  Reply APPLIED | UNCHANGED (this slot waits in the queue already; the letter stays)
        | GONE (no definition of this uid) | UNKNOWN (no such letter, or not any more)
        | BUSY (on its way to another shard) | ABSENT (not in this draining shard)
  Error OOM
]]
-- keys meta heads occ occrec wake leases lane bucket
local DEAD, LETTERS, LETTER_SUMS = unpack(KEYS, 9)
-- include shard
-- include time
-- include wake
-- include occurrences
-- include wanteddefinition
-- include unburying
if #redis.call('XRANGE', DEAD, args.letter, args.letter) == 0 then
  return 'UNKNOWN'
end
local now, before = server_time(), shard_head()
if not add_occurrence(LANE, now, ARGV[args.member], ARGV[args.record]) then
  return 'UNCHANGED'
end
remove_letter(args.letter)
refresh_head(args.lane, LANE)
announce_head(before, now)
return 'APPLIED'
