"""Duepoint: schedules for Kubernetes that are never early, never lost and never doubled."""

__version__ = "0.1.0"
