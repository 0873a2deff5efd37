"""Hypothesis, with the settings of our tests.

A ``conftest.py`` above each test of generated cases imports this module, before the tests copy what
is set. Hypothesis takes long to import, so the conftest of all tests does not.
"""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is the machine's affair; pytest-timeout ends what hangs.
settings.register_profile("duepoint", deadline=None)
settings.load_profile("duepoint")
