#!lua
--[[
  Entries are added to users' streams, and what the claim holds of their members is settled, in one step: both
  or neither, so that a lost reply or a death right after doubles no entry. A full server refuses it: the points
  stay the claim's. Called again under its number it changes nothing. For a
  server that is no cluster: streams and shard lie apart there.

  KEYS  as `settle`, then the streams, each with its state
  ARGV  as `settle`, and
        entries {{key, state, max_length, bytes, most_bytes, members {from, to}, joined, names {from, to},
          common {from, to}, own {column ...}, values {from, to}, outcome}}: for each stream its position in KEYS and
          that of what is counted of it; the bytes that come, and those that it keeps; the member that each entry is
          because of (joined: position of chain members in one value, or 0); names of the fields, and the value that
          each has in every entry; own: the fields, from 1, that have another in each; their values, entry by entry;
          position of an outcome that is written with them, or 0
  Reply as `settle`, and where a stream of several takes no entry, sixth {the server's error or ''
          for each stream}: the points of that one are still held, its outcome was not written
        | {'lost'} | {'partial', {1 or 0 for each member: whether it is held}}
        | {'refused', the server's error}: no stream takes an entry. With these three nothing was written
  Error OOM
]]
-- body settle
