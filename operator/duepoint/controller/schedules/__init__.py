"""Schedules: the reconciler that stores each in the queue, and the resync of all of them."""
