"""The context of one term of a leader, which its services share.

Every service of a term is created with the ``TermContext``, and calls other services through its
``services`` attribute. These calls do not block.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duepoint import clock as clocks
from duepoint import errors, faults, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import events as kube_events
from duepoint.kube import port, schedules
from duepoint.runs.run import RunEvent

if TYPE_CHECKING:
    from duepoint.controller.leadership import TermServices


_LEAST_WAIT_SECONDS = 0.001


class Allowance:
    """The rate limit of a term's status writes, with a burst of one second's worth.

    Once a status is late by more than the patience, the rate grows with every further second, so
    that ten thousand statuses are written within a minute if the API server can take them.
    """

    PATIENCE_SECONDS = 20.0

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = now

    def take(self, now: float, *, late_seconds: float = 0.0) -> float:
        """Take one write and return 0.0, or return the seconds to wait before the next try.

        Args:
            now: monotonic seconds.
            late_seconds: how long the status to write has been due.
        """
        rate = self._per_second * (1 + max(0.0, late_seconds - self.PATIENCE_SECONDS))
        self._left = min(rate, self._left + (now - self._at) * rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        # A wait shorter than a clock's step would end at once, and the caller would spin.
        return max((1 - self._left) / rate, _LEAST_WAIT_SECONDS)


@dataclass(kw_only=True)
class TermContext:
    """The context that the services of a term share.

    Attributes:
        api: the API server.
        queue: the delay queue, started.
        epoch: the fencing token against older leaders.
        health: receives the state of each part of the operator.
        namespaces: the watched namespaces; empty = the whole cluster.
        installation: our installation, as statuses and the index name it; empty = it has no name.
        writes_per_second: the rate of status writes, for all kinds together.
        record: records an Event for users.
        on_run: called with every run event.
        annotate: puts annotations on the Lease, with its next renewal.
        services: all services of the term.
    """

    api: port.Api
    queue: DelayQueue
    epoch: messages.Epoch
    clock: Clock
    health: services.Health
    namespaces: tuple[str, ...] = ()
    installation: str = ""
    writes_per_second: float = 50
    record: Callable[[kube_events.Event], None] = lambda _event: None
    on_run: Callable[[RunEvent], None] = lambda _event: None
    annotate: Callable[[Mapping[str, str]], None] = lambda _notes: None
    services: TermServices = field(init=False)

    @functools.cached_property
    def allowance(self) -> Allowance:
        """The rate limit of all status writes, of every kind of object."""
        return Allowance(self.writes_per_second, self.clock.monotonic())

    async def take_write(self, changed_at: float | None = None) -> None:
        """Wait until the rate limit lets a status be written that has changed at that time."""
        while True:
            now = self.clock.monotonic()
            late = 0.0 if changed_at is None else now - changed_at
            wait = self.allowance.take(now, late_seconds=late)
            if not wait:
                return
            await self.clock.sleep(wait)

    async def write_status(
        self, target: schedules.StatusTarget, fields: Mapping[str, Any]
    ) -> schedules.StatusWritten | schedules.ObjectReplaced | schedules.StatusRefused:
        """Replace the status of an object; log a refusal. Raises ApiError."""
        await faults.reach(FaultPoint.BEFORE_STATUS_WRITE)
        answer = await schedules.write_status(self.api, target, fields)
        await faults.reach(FaultPoint.AFTER_STATUS_WRITE)
        if isinstance(answer, schedules.StatusRefused):
            place = {"namespace": target.namespace, "name": target.name, "resource": target.plural}
            telemetry.logger.warning("status refused", error=answer.message, **place)
        return answer

    async def repeat(
        self,
        part: str,
        step: Callable[[], Awaitable[None]],
        trouble: str,
        *,
        asked: asyncio.Event,
        every_seconds: float | None,
        most_seconds: float = 10.0,
    ) -> None:
        """Take a step until cancelled: when asked, and so long after the last one; None = never."""
        while True:
            asked.clear()
            await self.until_done(part, step, trouble, most_seconds=most_seconds)
            await clocks.wait_for(asked, every_seconds, self.clock)

    async def until_done(
        self,
        part: str,
        look: Callable[[], Awaitable[None]],
        trouble: str,
        *,
        most_seconds: float = 10.0,
    ) -> None:
        """Repeat a step until it succeeds; report failures as a part of the health.

        A plain retry loop, not a work queue: the next try also serves requests made meanwhile. An
        unexpected state of one service stops that service, but not the term.
        """
        waits = services.backoff(first_seconds=0.2, most_seconds=most_seconds)
        while True:
            try:
                await look()
            except (queue_errors.Fenced, queue_errors.LayoutChanged):
                raise
            except (
                errors.TryLater,
                errors.WorldChanged,
                errors.Bug,
                kube_errors.ApiError,
            ) as amiss:
                if self.health.unwell(part, str(amiss)):
                    telemetry.logger.warning(trouble, error=str(amiss))
                await self.clock.sleep(next(waits))
            else:
                self.health.well(part)
                return
