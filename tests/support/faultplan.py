"""A plan that injects a fault at a fault point of the product (``duepoint.faults``).

A *part* is a unit that dies as a whole: a worker, a leader, a process. A context variable, which
tasks inherit, tells the parts in one process apart. Each task of a dead part stops at the fault
point, or at the next one that it reaches: it sends nothing more, and its connections stay open,
like those of a process stopped with SIGSTOP. A process of its own
(``tests.support.faultyprocess``) ends instead.
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
    """Make tasks that are created within belong to this part."""
    token = _part.set(name)
    try:
        yield
    finally:
        _part.reset(token)


class FaultPlan:
    """A fault at one point, the first time that any part reaches it; it counts all other points.

    Args:
        point: None = nothing happens.
        error: the exception raised there; ``CANCEL`` = cancel the task that reaches it; None = the
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
        """Handle a fault point; the product calls this hook."""
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
        """Release the tasks of dead parts for clean-up; any further work of theirs is cut off."""
        self._is_over = True

    @contextlib.contextmanager
    def installed(self) -> Iterator[FaultPlan]:
        """Let the product call this plan at its fault points within."""
        faults.install(self)
        try:
            yield self
        finally:
            self.end()
            faults.install(None)
