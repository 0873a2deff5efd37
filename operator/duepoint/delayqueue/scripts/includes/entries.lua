-- Entries of users' streams, group by group: those of one stream.

-- The member that each entry of a group is because of.
local function members_of(group)
  if group.joined > 0 then
    return joined_chains(ARGV[group.joined])
  end
  local members = {}
  for i = group.members[1], group.members[2] do
    members[#members + 1] = ARGV[i]
  end
  return members
end

-- A member that is not held has no entry, and its outcome is not true: the caller asks again without
-- it. The reply that says so; nil where all are held.
local function told_missing(groups, is_held)
  local held, missing = {}, false
  for _, group in ipairs(groups) do
    for _, member in ipairs(members_of(group)) do
      held[#held + 1] = is_held(member) and 1 or 0
      missing = missing or held[#held] == 0
    end
  end
  return missing and { 'partial', held } or nil
end

-- Adds the entries of a group, all or none; '' or the server's error. The stream is cut back with the
-- last one: each argument of a command costs more than what it asks for here.
local function append_group(group)
  local fields, own, width = {}, {}, #group.own
  for i = 0, group.names[2] - group.names[1] do
    fields[2 * i + 1] = ARGV[group.names[1] + i]
    fields[2 * i + 2] = ARGV[group.common[1] + i]
  end
  for i, column in ipairs(group.own) do
    own[i] = 2 * column
  end
  local key, last, added = KEYS[group.key], group.values[2] - width + 1, nil
  for first = group.values[1], group.values[2], width do
    for i = 1, width do
      fields[own[i]] = ARGV[first + i - 1]
    end
    if first == last then
      added = redis.pcall('XADD', key, 'MAXLEN', '~', group.max_length, '*', unpack(fields))
    else
      added = redis.pcall('XADD', key, '*', unpack(fields))
    end
    if added.err then -- a key of another type, no right to it: the first entry finds out
      return added.err
    end
  end
  bound_stream(key, KEYS[group.state], added, group.bytes, group.most_bytes)
  return ''
end
