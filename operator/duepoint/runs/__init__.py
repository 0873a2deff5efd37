"""What happened: outcomes, runs, retries, and their summary."""
