-- What `leases` says of a batch on its way: format, {{lane, bucket key, id, record or '', due or '', {member, due,
-- record, ...}}, ...}.
local function is_taken_schedule(taken)
  local is_whole = type(taken[1]) == 'string' and string.find(taken[1], '^%d+$')
    and type(taken[2]) == 'number' and type(taken[3]) == 'string' and type(taken[4]) == 'string'
    and (taken[5] == '' or tonumber(taken[5])) and #taken[6] % 3 == 0
  for i = 1, is_whole and #taken[6] or 0 do
    is_whole = is_whole and type(taken[6][i]) == 'string'
  end
  return is_whole
end

-- What the batch took; nothing where no process of ours wrote that: its schedules are here still, and go
-- with another batch.
local function read_batch(packed)
  local is_read, taken = pcall(function()
    local listed = cmsgpack.unpack(packed)[2]
    for _, schedule in ipairs(listed) do
      assert(is_taken_schedule(schedule))
    end
    return listed
  end)
  return is_read and taken or {}
end
