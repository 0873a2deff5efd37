"""A term for tests of a single service."""

from __future__ import annotations

from typing import Any

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
    return TermContext(clock=clock, **fields)
