"""Clients that wait real seconds, with what those of the unit tests have."""

from tests.unit.client.conftest import api, connect, reminders

__all__ = ["api", "connect", "reminders"]
