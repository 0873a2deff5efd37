"""What every long-running part of a process shares: health, services beside it, waits to retry.

``Health`` gathers what each part says of itself, for /readyz: a part that is not ready says why in
one line, and a part that has not spoken yet is not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Health:
    """What each part of the process says of itself: None is well, text is the trouble."""

    _troubles: dict[str, str | None] = field(default_factory=dict)

    def expect(self, *parts: str) -> None:
        """Name parts that must report before the process is ready."""
        for part in parts:
            self._troubles.setdefault(part, "starting")

    def well(self, part: str) -> bool:
        """Record that a part works; True where it did not a moment ago."""
        changed = self._troubles.get(part, "starting") is not None
        self._troubles[part] = None
        return changed

    def unwell(self, part: str, trouble: str) -> bool:
        """Record a trouble in one line; True where it is news."""
        changed = self._troubles.get(part, "starting") in (None, "starting")
        self._troubles[part] = trouble
        return changed

    def troubles(self) -> dict[str, str]:
        """The parts that are not well, with their troubles."""
        return {part: trouble for part, trouble in self._troubles.items() if trouble is not None}


@contextlib.asynccontextmanager
async def beside(service: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run an endless service until the body is over; its failure ends the body, and is raised.

    What depends on the service would otherwise wait for it for ever, and the process look well.
    """
    body, failures = asyncio.current_task(), list[BaseException]()

    def note_end(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            failures.append(failure)
            if body is not None:
                body.cancel()

    running = asyncio.create_task(service)
    running.add_done_callback(note_end)
    try:
        yield
    except asyncio.CancelledError:
        if not failures:
            raise
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    if failures:
        if body is not None:
            body.uncancel()
        raise failures[0]


def backoff(*, first_seconds: float, most_seconds: float) -> Iterator[float]:
    """Endless waits: doubling from the first to the most, each with full jitter of its half.

    The lower half is kept so that a retry is never at once.
    """
    ceiling = first_seconds
    while True:
        yield ceiling / 2 + random.uniform(0, ceiling / 2)  # noqa: S311 - spreads load, no secret
        ceiling = min(ceiling * 2, most_seconds)
