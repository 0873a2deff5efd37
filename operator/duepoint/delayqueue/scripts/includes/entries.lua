-- Adds entries to one user's stream, all or none, before the script writes anything else: where it
-- returns a reply, nothing was written. A member that is not held has no entry, and its outcome is
-- not true: the caller asks again without it.
local function append_entries(entries, is_held)
  local held, missing = {}, false
  for i = entries.members[1], entries.members[2] do
    held[#held + 1] = is_held(ARGV[i]) and 1 or 0
    missing = missing or held[#held] == 0
  end
  if missing then
    return { 'partial', held }
  end
  local fields, width = {}, entries.names[2] - entries.names[1] + 1
  for i = 1, width do
    fields[2 * i - 1] = ARGV[entries.names[1] + i - 1]
  end
  for i = entries.same[1], entries.same[2] do
    fields[2 * width + i - entries.same[1] + 1] = ARGV[i]
  end
  for first = entries.values[1], entries.values[2], width do
    for i = 1, width do
      fields[2 * i] = ARGV[first + i - 1]
    end
    local added = redis.pcall('XADD', KEYS[entries.key], 'MAXLEN', '~', entries.max_length, '*',
      unpack(fields))
    if added.err then -- a key of another type, no right to it: the first entry finds out
      return { 'refused', added.err }
    end
  end
  return nil
end
