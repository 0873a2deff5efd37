"""Duepoint: schedules for Kubernetes that are never early and never lost.

Jobs, and streams in Duepoint's own Redis, come exactly once; every other delivery comes at least
once, with an id that is the same for every attempt.
"""

__version__ = "0.1.0"
