"""Schedules as their owners handle them: list, describe, why, suspend, resume, logs."""
