-- include cuts
-- Adds the entries of a group (those of one user's stream), and their ids to `ids`; returns '' or the server's error. Only
-- the last XADD trims the stream: parsing the arguments costs more than trimming.
local function append_group(group, ids)
  local fields, own, width = {}, {}, #group.own
  for i = 0, group.names[2] - group.names[1] do
    fields[2 * i + 1] = ARGV[group.names[1] + i]
    fields[2 * i + 2] = ARGV[group.common[1] + i]
  end
  for i, column in ipairs(group.own) do
    own[i] = 2 * column
  end
  local stream, last, added = KEYS[group.key], group.values[2] - width + 1, nil
  for first = group.values[1], group.values[2], width do
    for i = 1, width do
      fields[own[i]] = ARGV[first + i - 1]
    end
    if first == last then
      added = redis.pcall('XADD', stream, 'MAXLEN', '~', group.max_length, '*', unpack(fields))
    else
      added = redis.pcall('XADD', stream, '*', unpack(fields))
    end
    if added.err then -- a key of another type, no right to it: the first entry finds out
      return added.err
    end
    ids[#ids + 1] = added
  end
  local oldest = oldest_kept(KEYS[group.state], '', added, group.bytes, group.most_bytes)
  if oldest then
    redis.call('XTRIM', stream, 'MINID', '~', oldest, 'LIMIT', 0)
  end
  return ''
end
