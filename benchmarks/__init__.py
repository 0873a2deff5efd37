"""Scenarios that measure; each prints one JSON line a figure."""
