"""Commands that show the queue: points, leases, shards, and dead letters."""
