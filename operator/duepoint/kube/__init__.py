"""The client of the Kubernetes API server; no other package talks to it."""
