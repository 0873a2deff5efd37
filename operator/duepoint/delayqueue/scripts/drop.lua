#!lua flags=allow-oom
--[[
  Rows of lanes are removed, also on a full server: what `put` does with parts that drop their rows.

  KEYS  as of `put`
  ARGV  as of `put`
  Reply as of `put`
]]
-- body put
