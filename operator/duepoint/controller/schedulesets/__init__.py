"""ScheduleSets: their records in the queue, statuses, rows and deletion."""
