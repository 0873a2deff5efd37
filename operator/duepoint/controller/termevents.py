"""News within one term of a leader: who publishes what, and to how many.

A service publishes through the ``TermEvents`` that its constructor takes; ``leadership`` subscribes
all listeners in one table, once every service exists. So services that concern one another are
made in one direction only. A signal without subscribers does nothing, which is what tests and
benchmarks of a single service want. Subscribers are called in the order of their subscription, in
the publisher's turn of the event loop, and must neither block nor raise.

Questions with an answer are no news: who asks is given the function in its constructor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, ParamSpec

from duepoint.delayqueue.messages import Layout
from duepoint.runs.run import RunEvent

if TYPE_CHECKING:
    from duepoint.controller.schedules.report import Report
    from duepoint.controller.sighting import Sighting
    from duepoint.controller.status.acknowledgements import Acknowledgement
    from duepoint.controller.status.runningjobs import RunningJob

P = ParamSpec("P")


class Signal(Generic[P]):
    """One kind of news; calling it publishes."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, object]] = []

    def subscribe(self, *subscribers: Callable[P, object]) -> None:
        """Call these for each publication from now on."""
        self._subscribers.extend(subscribers)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)


class AwaitedSignal(Generic[P]):
    """News whose publisher waits until every subscriber is done; raises what they raise."""

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, Awaitable[None]]] = []

    def subscribe(self, *subscribers: Callable[P, Awaitable[None]]) -> None:
        """Await these at each publication from now on."""
        self._subscribers.extend(subscribers)

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in self._subscribers:
            await subscriber(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class TermEvents:
    """All news of a term.

    Attributes:
        schedule_applied: the queue holds this state of a Schedule now, or it is gone from it.
        schedule_leaving: a deleted Schedule is about to leave the queue; published again where a
            subscriber raised TryLater.
        schedule_widened: (uid) an edit lets slots start, or end, that wait for runs to end.
        objects_compared: a complete resync has ended.

        run_changed: every event of a run, with the receipt that its readers settle.
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

        points_held: a shard is in doubt, or a held point was found.
        claims_lost: (instant in microseconds) claims of slots up to then were lost.
        index_doubted: the index may lack something.
        index_damaged: something in the index is to be compared with the objects.
        layout_read: the layout was read again.
        layout_changed: a layout begins, before anything moves to it, or has been reached.
        watch_listed: the watch has (re)listed or is about to: deletions may have been missed.
    """

    schedule_applied: Signal[[Sighting]] = field(default_factory=Signal)
    schedule_leaving: AwaitedSignal[[Sighting]] = field(default_factory=AwaitedSignal)
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
    mark_replaced: Signal[[Sighting]] = field(default_factory=Signal)

    points_held: Signal[[]] = field(default_factory=Signal)
    claims_lost: Signal[[int]] = field(default_factory=Signal)
    index_doubted: Signal[[]] = field(default_factory=Signal)
    index_damaged: Signal[[]] = field(default_factory=Signal)
    layout_read: Signal[[]] = field(default_factory=Signal)
    layout_changed: Signal[[Layout]] = field(default_factory=Signal)
    watch_listed: Signal[[]] = field(default_factory=Signal)
