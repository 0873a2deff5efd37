-- Whether the caller may not change members of a set with this entry: they follow rows (setrecord.py) and the caller
-- does not write for those, or the other way round. The caller's copy of a set may be stale; the entry is not.
local function is_changed_by_others(entry, by_rows)
  return (string.find(entry, ':m:', 1, true) ~= nil) ~= (by_rows == true)
end
