"""Writes and reads the definitions of schedules, and the texts that they share."""
