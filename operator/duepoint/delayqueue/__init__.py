"""The delay queue in Redis; nothing else talks to Redis."""
