"""ScheduleSets: their records in the queue, their statuses, their rows and their deletion."""
