"""The members of a ScheduleSet, through the HTTP API: looked at, changed, exported, imported."""
