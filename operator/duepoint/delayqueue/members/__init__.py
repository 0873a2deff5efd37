"""Members of ScheduleSets: schedules that live in the queue alone."""
