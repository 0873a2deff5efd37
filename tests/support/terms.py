"""A leadership term for tests of a single service, with mocks in place of all others."""

from __future__ import annotations

from typing import Any
from unittest import mock

from duepoint import services
from duepoint.clock import Clock
from duepoint.controller.term import TermContext
from duepoint.delayqueue import messages


def a_term(clock: Clock, **given: Any) -> TermContext:
    """Return a term with the parts that the service under test needs."""
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
