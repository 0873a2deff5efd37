"""Conversion of CronJobs into Schedules, with notes on what will differ."""
