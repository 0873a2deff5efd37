"""Benchmarks; each prints a JSON line for each figure."""
