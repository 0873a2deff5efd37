"""One term of a leader: what its services share, and how they reach one another.

Every service of a term is made with the ``TermContext``. Its ``services`` are set once all of them
exist, so that services that concern one another can call each other. What is called there does not
block.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import errors as kube_errors
from duepoint.kube import events as kube_events
from duepoint.kube import port
from duepoint.runs.run import RunEvent

if TYPE_CHECKING:
    from duepoint.controller.leadership import TermServices


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """The Job of a run that has not ended as far as is known.

    Attributes:
        reported_us: when a worker reported it; 0 = only a status lists it.
        may_come_again: another request to create it may be under way.
    """

    uid: str
    namespace: str
    schedule_name: str
    job_name: str
    slot_us: int
    trigger: str
    reported_us: int = 0
    may_come_again: bool = False

    @classmethod
    def of_event(cls, event: RunEvent) -> RunningJob:
        """The Job that a worker's event is about."""
        return cls(
            uid=event.uid,
            namespace=event.namespace,
            schedule_name=event.name,
            job_name=event.job_name,
            slot_us=event.slot_us,
            trigger=event.trigger,
            reported_us=event.at_us,
            may_come_again=event.may_come_again,
        )


_LEAST_WAIT_SECONDS = 0.001


class Allowance:
    """How many statuses a term writes a second: a rate with a second's worth of burst.

    Once a status is later than the patience, the rate grows with every second that it is, so that
    ten thousand statuses are written within a minute where the API server can.
    """

    PATIENCE_SECONDS = 20.0

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._left = per_second
        self._at = now

    def take(self, now: float, *, late_seconds: float = 0.0) -> float:
        """0.0 and one write less left, or the seconds until it is worth asking again.

        Args:
            now: monotonic seconds.
            late_seconds: how long the one that would be written has been due.
        """
        rate = self._per_second * (1 + max(0.0, late_seconds - self.PATIENCE_SECONDS))
        self._left = min(rate, self._left + (now - self._at) * rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        # A wait below a clock's step would be none, and the caller would spin.
        return max((1 - self._left) / rate, _LEAST_WAIT_SECONDS)


@dataclass(kw_only=True)
class TermContext:
    """What the services of a term share.

    Attributes:
        api: the API server.
        queue: the delay queue, started.
        epoch: the number that fences older leaders.
        health: takes the state of each part of the operator.
        namespaces: the namespaces that are looked after; empty = the whole cluster.
        installation: our installation, as statuses and the index name it; empty = it has no name.
        writes_per_second: the rate of status writes, of all kinds together.
        record: records an Event for users.
        on_run: hears every event of a run.
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
        """What the writers of statuses, one for each kind of object, share."""
        return Allowance(self.writes_per_second, self.clock.monotonic())

    async def until_done(
        self, part: str, look: Callable[[], Awaitable[None]], trouble: str
    ) -> None:
        """Repeat a look at everything until it succeeds; the part of the health says what is amiss.

        Not a key of a work queue: what is asked for meanwhile is met by the next try.
        """
        waits = services.backoff(first_seconds=0.2, most_seconds=10.0)
        while True:
            try:
                await look()
            except (queue_errors.Fenced, queue_errors.LayoutChanged):
                raise
            except (errors.TryLater, errors.WorldChanged, kube_errors.ApiError) as amiss:
                if self.health.unwell(part, str(amiss)):
                    telemetry.logger.warning(trouble, error=str(amiss))
                await self.clock.sleep(next(waits))
            else:
                self.health.well(part)
                return
