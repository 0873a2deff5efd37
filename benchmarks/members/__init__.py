"""Sets at full size, and kill -9 of every process beside writes to sets."""
