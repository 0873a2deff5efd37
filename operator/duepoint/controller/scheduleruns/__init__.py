"""ScheduleRuns: their state, their reconciler and their statuses."""
