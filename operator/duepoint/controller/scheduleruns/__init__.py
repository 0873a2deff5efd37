"""ScheduleRuns: what they ask for, how far it is, and what is written of it."""
