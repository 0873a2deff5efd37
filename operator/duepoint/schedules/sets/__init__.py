"""A ScheduleSet: one object, and a population of members that live in the queue alone."""
