"""Benchmarks; each prints its figures as JSON, one a line."""
