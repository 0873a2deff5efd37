"""CronJobs as Schedules: read, rewritten, checked, with notes on what will differ."""
