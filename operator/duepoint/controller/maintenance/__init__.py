"""The leader's slow work on the index: sweeps, partitioning, collecting, counting."""
