"""Manifests before a cluster sees them: read, checked against the CRD, and simulated."""
