"""The index at full size: loading, bytes, sweeping, creating beside firing, rebuilding."""
