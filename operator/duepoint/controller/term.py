"""One term of a leader: what its services share, and the events between them.

Every service of a term is made with the ``TermContext``. It publishes through ``TermEvents``;
``termservices.subscribe`` is the one table of subscribers, filled once every service exists. So
services that concern one another are made in one direction only. A signal without subscribers does
nothing, which is what tests and benchmarks of a single service want. Subscribers are called in the
order of their subscription, in the publisher's turn of the event loop, and must neither block nor
raise.

A question with an answer is no event: the service that asks gets the function in its constructor.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, ParamSpec

from duepoint import agreedclock, services
from duepoint.clock import Clock
from duepoint.controller.allowance import Allowance
from duepoint.delayqueue import messages
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import events as kube_events
from duepoint.kube import port
from duepoint.runs.run import RunEvent

if TYPE_CHECKING:
    from duepoint.controller.observed import Observed
    from duepoint.controller.statusconditions import Report


#: Who waits for clocks that agree looks this often.
_TIME_SECONDS = 0.1


@dataclass(slots=True)
class Acknowledgement:
    """What has to be published before an entry of an outcome stream may be acknowledged.

    Such an entry carries events of many Schedules. It is acknowledged when every status that its
    events changed has been written, or needs no write any more. A crash before that reads the entry
    again, and the fold recognises what it has counted. ``when_done`` is called once.
    """

    when_done: Callable[[], None]
    outstanding: int = 1

    def expect(self) -> None:
        """One more status has to be written."""
        self.outstanding += 1

    def settle(self) -> None:
        """One status less has to be written."""
        self.outstanding -= 1
        if self.outstanding == 0:
            self.when_done()


def settle_all(acks: Iterable[Acknowledgement]) -> None:
    """One status less for each of these."""
    for ack in acks:
        ack.settle()


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


P = ParamSpec("P")


class Signal(Generic[P]):
    """One kind of event; calling it publishes.

    A publisher that has to wait until every subscriber is done awaits ``completed`` instead, which
    raises what they raise.
    """

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, *subscribers: Callable[P, object]) -> None:
        """Call these for each publication from now on."""
        self._subscribers.extend(subscribers)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)

    async def completed(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Publish to subscribers that return awaitables, one after the other."""
        for subscriber in self._subscribers:
            done = subscriber(*args, **kwargs)
            assert isinstance(done, Awaitable)  # noqa: S101 - of every subscriber of such an event
            await done


@dataclass(frozen=True, slots=True)
class TermEvents:
    """All events of a term.

    Attributes:
        schedule_applied: the queue holds this state of a Schedule now, or it is gone from it.
        schedule_leaving: a deleted Schedule is about to leave the queue; published again where a
            subscriber raised TryLater.
        schedule_widened: (uid) an edit lets slots start, or end, that wait for runs to end.
        objects_compared: a complete resync has ended.

        run_changed: every event of a run, with the acknowledgement that its readers settle.
        run_started: a run goes on in a Job.
        run_replacing: a worker is about to delete the Job of a run in favour of a newer slot.
        slot_withdrawn: how a slot ended that waited when its ScheduleRun was deleted.
        job_ended: (uid of the Schedule, name of the Job) a Job has ended, was released or was sent
            away; an empty name where one is gone that was not seen to end.
        jobs_released: (uid of the Schedule) finished Jobs may be deleted now.
        template_proven: (uid, generation) a Job was created while its dry run had no verdict.

        status_written: (uid) a status was written, or its history may be deleted all the same.
        generation_refused: (namespace, name, uid, report) a generation must leave the queue.
        mark_replaced: a Schedule was seen whose status is not marked as ours although we wrote it.

        doubt_found: a shard went back, or more of what is overdue there was found.
        claims_lost: (instant in microseconds) claims of slots up to then were lost.
        index_suspected: the index may lack something.
        index_damaged: something in the index is to be compared with the objects.
        layout_read: the layout was read again.
        layout_changed: a layout begins, before anything moves to it, or has been reached.
        watch_listed: the watch begins, or begins again: what changed before is not in it.
    """

    schedule_applied: Signal[[Observed]] = field(default_factory=Signal)
    schedule_leaving: Signal[[Observed]] = field(default_factory=Signal)
    schedule_widened: Signal[[str]] = field(default_factory=Signal)
    objects_compared: Signal[[]] = field(default_factory=Signal)

    run_changed: Signal[[RunEvent, Acknowledgement | None]] = field(default_factory=Signal)
    run_started: Signal[[RunningJob]] = field(default_factory=Signal)
    run_replacing: Signal[[RunEvent, Acknowledgement | None]] = field(default_factory=Signal)
    slot_withdrawn: Signal[[RunEvent]] = field(default_factory=Signal)
    job_ended: Signal[[str, str]] = field(default_factory=Signal)
    jobs_released: Signal[[str]] = field(default_factory=Signal)
    template_proven: Signal[[str, int]] = field(default_factory=Signal)

    status_written: Signal[[str]] = field(default_factory=Signal)
    generation_refused: Signal[[str, str, str, Report]] = field(default_factory=Signal)
    mark_replaced: Signal[[Observed]] = field(default_factory=Signal)

    doubt_found: Signal[[]] = field(default_factory=Signal)
    claims_lost: Signal[[int]] = field(default_factory=Signal)
    index_suspected: Signal[[]] = field(default_factory=Signal)
    index_damaged: Signal[[]] = field(default_factory=Signal)
    layout_read: Signal[[]] = field(default_factory=Signal)
    layout_changed: Signal[[messages.Layout]] = field(default_factory=Signal)
    watch_listed: Signal[[]] = field(default_factory=Signal)


@dataclass(frozen=True, kw_only=True)
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
    """

    api: port.Api
    queue: DelayQueue
    epoch: messages.Epoch
    clock: Clock
    health: services.Health
    events: TermEvents = field(default_factory=TermEvents)
    namespaces: tuple[str, ...] = ()
    installation: str = ""
    writes_per_second: float = 50
    record: Callable[[kube_events.Event], None] = lambda _event: None

    @functools.cached_property
    def allowance(self) -> Allowance:
        """What the writers of statuses, one for each kind of object, share."""
        return Allowance(self.writes_per_second, self.clock.monotonic())


async def wait_for_time(clock: Clock) -> None:
    """Return once two clocks agree: nothing is armed by one that may be an hour wrong."""
    while agreedclock.distrust(clock):
        await clock.sleep(_TIME_SECONDS)
