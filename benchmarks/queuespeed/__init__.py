"""The delay queue measured through its own class, on a server that the benchmark starts."""
