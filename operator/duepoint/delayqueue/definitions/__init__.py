"""What the index knows of schedules: definitions and the texts they share, written and read."""
