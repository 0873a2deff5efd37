"""The context of one term of a leader, which its services share.

Every service of a term is created with the ``TermContext``, and calls other services through its
``services`` attribute. These calls do not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

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
    from duepoint.controller.observed import Observed
    from duepoint.controller.status.state import ScheduleState

ResultT = TypeVar("ResultT")

_LEAST_WAIT_SECONDS = 0.001
#: A status that is late by more raises the rate of status writes with every further second, so that
#: ten thousand are written within a minute if the API server can take them.
_PATIENCE_SECONDS = 20.0


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
        has_own_streams: whether the installation has streams in our Redis.
        writes_per_second: the rate of status writes, for all kinds together; a write costs the API
            server about as much as a create.
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
    has_own_streams: bool = True
    writes_per_second: float = 50
    record: Callable[[kube_events.Event], None] = lambda _event: None
    on_run: Callable[[RunEvent], None] = lambda _event: None
    annotate: Callable[[Mapping[str, str]], None] = lambda _notes: None
    services: TermServices = field(init=False)
    _writes_left: float = field(init=False, default=float("inf"))
    _taken_at: float = field(init=False, default=0.0)

    def try_write(self, changed_at: float | None = None) -> float:
        """Take one status write and return 0.0, or return the seconds to wait before the next try.

        The rate limit is for all kinds of objects together, with a burst of one second's worth.

        Args:
            changed_at: since when the status has changed, in monotonic seconds; None = now.
        """
        now = self.clock.monotonic()
        late_seconds = 0.0 if changed_at is None else now - changed_at
        rate = self.writes_per_second * (1 + max(0.0, late_seconds - _PATIENCE_SECONDS))
        self._writes_left = min(rate, self._writes_left + (now - self._taken_at) * rate)
        self._taken_at = now
        if self._writes_left >= 1:
            self._writes_left -= 1
            return 0.0
        # A wait shorter than a clock's step would end at once, and the caller would spin.
        return max((1 - self._writes_left) / rate, _LEAST_WAIT_SECONDS)

    async def take_write(self, changed_at: float | None = None) -> None:
        """Wait until the rate limit lets a status be written that has changed at that time."""
        while wait := self.try_write(changed_at):
            await self.clock.sleep(wait)

    async def write_status(
        self,
        seen: Observed | ScheduleState,
        fields: Mapping[str, Any],
        plural: str = schedules.PLURAL,
    ) -> int | None:
        """Replace the status of an object; log a refusal. See ``schedules.write_status``."""
        target = schedules.StatusTarget(
            namespace=seen.namespace, name=seen.name, uid=seen.uid, plural=plural
        )
        await faults.reach(FaultPoint.BEFORE_STATUS_WRITE)
        try:
            return await schedules.write_status(self.api, target, fields)
        except kube_errors.Invalid as refusal:
            place = {"namespace": seen.namespace, "name": seen.name, "resource": plural}
            telemetry.logger.warning("status refused", error=str(refusal), **place)
            raise
        finally:
            await faults.reach(FaultPoint.AFTER_STATUS_WRITE)

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
        look: Callable[[], Awaitable[ResultT]],
        trouble: str,
        *,
        most_seconds: float = 10.0,
    ) -> ResultT:
        """Repeat a step until it succeeds; report failures as a part of the health.

        A plain retry loop, not a work queue: the next try also serves requests made meanwhile. An
        unexpected state of one service stops that service, but not the term.
        """
        waits = services.backoff(first_seconds=0.2, most_seconds=most_seconds)
        while True:
            try:
                result = await look()
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
                return result
