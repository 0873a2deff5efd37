"""The delay queue in Redis; no other package talks to Redis."""
