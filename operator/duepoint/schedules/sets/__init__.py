"""ScheduleSets: one object each, and many members, which are stored only in the queue."""
