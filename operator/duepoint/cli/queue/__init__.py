"""What the queue holds: points, leases, shards, and dead letters."""
