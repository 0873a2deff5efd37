"""The Jobs of Schedules: the watch, the ends of runs, and the history limits."""
