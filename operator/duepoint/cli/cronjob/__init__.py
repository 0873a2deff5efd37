"""CronJobs as Schedules: read, rewritten, judged, and told what will differ."""
