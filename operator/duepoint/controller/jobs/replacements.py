"""Jobs that a worker deletes because a newer slot takes their place, under policy ``Replace``.

A worker says so before it deletes, through the outcomes; what becomes of the Job the API server
says, through the watch. So before a run is told to have failed because its Job is gone, every
outcome that was told until then is read: a Job that Duepoint replaced is never taken for one that
somebody deleted, whichever comes first. One reading serves all Jobs that were gone when it began:
thousands may go at once. What was said is kept with its receipt until the Job is
gone or has ended, so the next leader is told of it again where this one dies in between.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from duepoint.clock import Clock
from duepoint.controller.status.receipts import Receipt
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason


class Tell(Protocol):
    """The reporter's ear."""

    def __call__(
        self,
        event: RunEvent,
        *,
        replayed: bool = False,
        receipt: Receipt | None = None,
        is_lost: bool = False,
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class _Noted:
    """What a worker said, and that it is to be said again until it has become true."""

    event: RunEvent
    receipt: Receipt | None


class Replacements:
    """One for each term of a leader.

    Args:
        catch_up: returns once every outcome told before the call was handed to ``note``; raises
            TryLater.
    """

    def __init__(
        self, tell: Tell, clock: Clock, *, catch_up: Callable[[], Awaitable[None]]
    ) -> None:
        self._tell = tell
        self._clock = clock
        #: When the newest reading that came to its end had begun, monotonic.
        self._caught_up_at = -math.inf
        self._noted: dict[tuple[str, str], _Noted] = {}
        self._catch_up = catch_up

    def note(self, event: RunEvent, receipt: Receipt | None) -> None:
        """The Job of this run is about to be deleted."""
        if receipt is not None:
            receipt.expect()
        self.let_go(event.uid, event.job_name)
        self._noted[event.uid, event.job_name] = _Noted(event, receipt)

    def runs(self) -> list[RunEvent]:
        """What was said and has not become true yet."""
        return [noted.event for noted in self._noted.values()]

    def let_go(self, schedule_uid: str, job_name: str) -> None:
        """The run has ended otherwise, or was told of."""
        noted = self._noted.pop((schedule_uid, job_name), None)
        if noted is not None and noted.receipt is not None:
            noted.receipt.settle()

    async def end(self, gone: RunEvent, seen_at: float) -> None:
        """The Job of this run was gone before its end was seen; raises TryLater.

        Args:
            gone: how the run has ended, unless the Job was replaced.
            seen_at: when the Job was known to be gone, monotonic.
        """
        key = gone.uid, gone.job_name
        if key not in self._noted and self._caught_up_at <= seen_at:
            began_at = self._clock.monotonic()
            await self._catch_up()
            self._caught_up_at = max(self._caught_up_at, began_at)
        noted = self._noted.get(key)
        if noted is None:
            self._tell(gone)
            return
        ended = msgspec.structs.replace(
            gone, state=RunState.REPLACED, reason=Reason.REPLACED, message=noted.event.message
        )
        # What the watch showed ends no slot in the queue, so it is told as lost claims are.
        self._tell(ended, receipt=noted.receipt, is_lost=True)
        self.let_go(*key)
