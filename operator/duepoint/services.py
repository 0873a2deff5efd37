"""Helpers of the long-running parts of a process: health, background services, backoff.

``Health`` collects the reports of all parts for /readyz: a part that is not ready says why in
one line, and a part that has not reported yet is not ready.
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
    """The reports of all parts of the process: each is None if the part works, else its trouble."""

    _troubles: dict[str, str | None] = field(default_factory=dict)

    def expect(self, *parts: str) -> None:
        """Name parts that must report before the process is ready."""
        for part in parts:
            self._troubles.setdefault(part, "starting")

    def well(self, part: str) -> bool:
        """Record that a part works; return whether that is new."""
        changed = self._troubles.get(part, "starting") is not None
        self._troubles[part] = None
        return changed

    def unwell(self, part: str, trouble: str) -> bool:
        """Record a trouble in one line; return whether the part had none before."""
        changed = self._troubles.get(part, "starting") in (None, "starting")
        self._troubles[part] = trouble
        return changed

    def troubles(self) -> dict[str, str]:
        """Return the parts that are not well, with their troubles."""
        return {part: trouble for part, trouble in self._troubles.items() if trouble is not None}


@contextlib.asynccontextmanager
async def beside(service: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run an endless service while the body runs; its failure ends the body, and is raised.

    Otherwise the body would wait for a dead service for ever, and the process would look well.
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
    """Yield waits in seconds without end: doubling from first to most, each with jitter.

    Jitter takes away at most half of a wait, so that no retry comes at once.
    """
    ceiling = first_seconds
    while True:
        yield ceiling / 2 + random.uniform(0, ceiling / 2)  # noqa: S311 - spreads load, no secret
        ceiling = min(ceiling * 2, most_seconds)
