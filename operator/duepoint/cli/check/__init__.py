"""Checks of manifests before a cluster sees them: reading, validation and simulation."""
