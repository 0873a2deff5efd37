"""Fakes that pass the suites of the real things; for tests of Duepoint and of its users."""
