-- Adds outcomes to the shard's `runs` stream and tells the reporter once; `more` are positions in ARGV
-- of others.
local function write_outcomes(runs, ran, more)
  local told = more or {}
  for i = args.outcomes[1], args.outcomes[2] do
    told[#told + 1] = i
  end
  for _, i in ipairs(told) do
    redis.call('XADD', runs, 'MAXLEN', '~', args.runs_limit, '*', 'o', ARGV[i])
  end
  if #told > 0 then
    redis.call('SPUBLISH', ran, '')
  end
end
