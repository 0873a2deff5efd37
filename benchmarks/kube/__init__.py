"""Duepoint on Kubernetes beside CronJob: bursts of Jobs, many Schedules, restarts."""
