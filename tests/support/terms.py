"""A term for tests of a single service; what that says to others goes to mocks."""

from __future__ import annotations

from typing import Any
from unittest import mock

from duepoint import services
from duepoint.clock import Clock
from duepoint.controller.term import TermContext
from duepoint.delayqueue import messages


def a_term(clock: Clock, **given: Any) -> TermContext:
    """With what the service under test needs; it asks for nothing else."""
    fields = {
        "api": None,
        "queue": None,
        "epoch": messages.Epoch(1),
        "health": services.Health(),
        **given,
    }
    made = TermContext(clock=clock, **fields)
    made.services = mock.MagicMock()
    return made
