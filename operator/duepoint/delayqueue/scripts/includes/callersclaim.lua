-- include members
-- The caller's claim: the end of its lease (us; nil: it is lost), and the score of its points.
local id = ARGV[args.id]
local token = tonumber(redis.call('ZSCORE', CLAIMS, id) or 'nil')
local band = token and CLAIMED + token
