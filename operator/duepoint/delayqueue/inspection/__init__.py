"""Reads the index for people and metrics."""
