"""Schedules run by hand: once, or for the slots of a range."""
