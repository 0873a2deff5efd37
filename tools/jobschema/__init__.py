"""Generates the CRDs: see `__main__`."""
