"""Changes the number of shards, and moves schedules to the new ones."""
