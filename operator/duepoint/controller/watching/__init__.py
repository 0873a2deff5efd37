"""kopf's part: its thread, what it calls, and how it is kept lean."""
