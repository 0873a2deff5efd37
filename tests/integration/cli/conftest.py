"""Commands that take real seconds, with what those of the unit tests have."""

from tests.unit.cli.conftest import api, duepoint, environment, refused

__all__ = ["api", "duepoint", "environment", "refused"]
