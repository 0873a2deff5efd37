"""The leader's slow work on the index: sweeps, partitioning, health checks and gauges."""
