-- The member that each entry is because of.
local function members_of(entries)
  if entries.joined > 0 then
    return joined_chains(ARGV[entries.joined])
  end
  local members = {}
  for i = entries.members[1], entries.members[2] do
    members[#members + 1] = ARGV[i]
  end
  return members
end

-- Adds entries to one user's stream, all or none, before the script writes anything else: where it
-- returns a reply, nothing was written. A member that is not held has no entry, and its outcome is
-- not true: the caller asks again without it.
local function append_entries(entries, is_held, all_held)
  local held, missing = {}, false
  for _, member in ipairs(all_held and {} or members_of(entries)) do
    held[#held + 1] = is_held(member) and 1 or 0
    missing = missing or held[#held] == 0
  end
  if missing then
    return { 'partial', held }
  end
  local fields, own, width = {}, {}, #entries.own
  for i = 0, entries.names[2] - entries.names[1] do
    fields[2 * i + 1] = ARGV[entries.names[1] + i]
    fields[2 * i + 2] = ARGV[entries.common[1] + i]
  end
  for i, column in ipairs(entries.own) do
    own[i] = 2 * column
  end
  for first = entries.values[1], entries.values[2], width do
    for i = 1, width do
      fields[own[i]] = ARGV[first + i - 1]
    end
    local added = redis.pcall('XADD', KEYS[entries.key], 'MAXLEN', '~', entries.max_length, '*',
      unpack(fields))
    if added.err then -- a key of another type, no right to it: the first entry finds out
      return { 'refused', added.err }
    end
  end
  return nil
end
