"""Deliberate bugs of one line, and which test catches each: ``python -m tools.mutants``."""
