"""Runs: outcomes of attempts, run events, retries, and their summary."""
