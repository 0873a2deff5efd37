"""Hypothesis, with the settings of our tests.

A ``conftest.py`` above each test of generated cases imports this module before the tests copy the
settings. Hypothesis takes long to import, so the conftest of all tests does not import it.
"""

from __future__ import annotations

from hypothesis import settings

# No deadline: an example takes longer on a busy machine, and pytest-timeout ends one that hangs.
settings.register_profile("duepoint", deadline=None)
settings.load_profile("duepoint")
