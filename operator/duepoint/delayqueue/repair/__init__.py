"""Checks the consistency of the index, and repairs it."""
