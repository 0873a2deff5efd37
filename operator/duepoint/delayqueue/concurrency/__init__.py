"""Concurrency policies: which claimed slots may start beside the active runs of their schedule."""
