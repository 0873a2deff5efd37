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
