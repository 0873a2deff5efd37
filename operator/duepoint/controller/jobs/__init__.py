"""Jobs of Schedules: which are active, how they end, which are too many, and which are lost."""
