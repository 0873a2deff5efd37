"""Commands for owners of Schedules: list, describe, why, suspend, resume, logs."""
