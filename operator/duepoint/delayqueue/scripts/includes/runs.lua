-- Adds outcomes to the shard's `runs` stream and tells the reporter once.
local function write_outcomes(runs, ran)
  for i = args.outcomes[1], args.outcomes[2] do
    redis.call('XADD', runs, 'MAXLEN', '~', args.runs_limit, '*', 'o', ARGV[i])
  end
  if args.outcomes[2] >= args.outcomes[1] then
    redis.call('SPUBLISH', ran, '')
  end
end
