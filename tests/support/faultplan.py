"""Faults at the fault points of the product (``duepoint.faults``): what happens where, and when.

What dies together is a *part*: a worker, a leader, a process. In one process the tasks of parts are
told apart by a context variable, which tasks inherit. A part that dies stands still at its fault
point, and at every other one that a task of it reaches from then on: it sends nothing more, and its
connections stay as they are, as those of a process that was stopped with SIGSTOP. A process of its
own (``tests.support.faultyprocess``) ends instead.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
from collections.abc import Iterator

from duepoint import faults
from duepoint.faults import FaultPoint

#: The task is cancelled, as its owner may do at any await.
CANCEL = asyncio.CancelledError("injected")

_part: contextvars.ContextVar[str] = contextvars.ContextVar("part", default="")


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Tasks that are created within belong to this part."""
    token = _part.set(name)
    try:
        yield
    finally:
        _part.reset(token)


class FaultPlan:
    """What happens at one point, the first time that any part reaches it; other points are counted.

    Args:
        point: None = nothing happens.
        error: what is raised there; ``CANCEL`` = the task that reaches it is cancelled; None = the
            part dies.

    Attributes:
        hits: how often each point was reached.
        dead: the parts that have died.
    """

    def __init__(self, point: FaultPoint | None = None, error: BaseException | None = None) -> None:
        self.hits: collections.Counter[FaultPoint] = collections.Counter()
        self.dead: set[str] = set()
        self._point = point
        self._error = error
        self._is_over = False

    async def __call__(self, point: FaultPoint) -> None:
        """What the hook does."""
        self.hits[point] += 1
        name = _part.get()
        if point is self._point and self.hits[point] == 1:
            if self._error is CANCEL:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)
            elif self._error is not None:
                raise self._error
            self.dead.add(name)
        if name in self.dead:
            if self._is_over:
                raise asyncio.CancelledError
            await asyncio.Event().wait()

    def end(self) -> None:
        """Dead parts may be cleared away: what they still want to do is cut off."""
        self._is_over = True

    @contextlib.contextmanager
    def installed(self) -> Iterator[FaultPlan]:
        """Points lead here within."""
        faults.install(self)
        try:
            yield self
        finally:
            self.end()
            faults.install(None)
