"""Schedules of which something was observed, brought into the queue by a few workers.

``observations`` turns what was seen into tasks, one for each uid at a time. A new object is read
and stored together with other new ones, up to 500 by one call; any other is alone. Both take the
same steps: read the text, apply it (``reconcile``), report what the queue holds then.

Trouble is reported where it belongs. Redis away: all workers wait together, with jitter, and only
statuses of objects with a change that is not applied say so. A bug of ours: that object alone is
``Reconciling`` with ``InternalError``, tried again with backoff, while the others go on. A newer
leader: the term ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import msgspec
import structlog

from duepoint import clock as clocks
from duepoint import errors, faults, services, telemetry
from duepoint.controller import observed, plan, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.schedules import observations, reconcile
from duepoint.controller.schedules.observations import Observations, Task
from duepoint.controller.status import published
from duepoint.controller.status.reporter import Reporter
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import Batches
from duepoint.delayqueue import errors as queue_errors
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from duepoint.runs.watermark import newest
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import State

#: Their calls share round trips: 32 fill an empty queue in half the CPU time of 8.
WORKERS = 32

#: Objects of which the queue holds nothing, stored by one call: an emptied queue is filled so.
_MOST_TOGETHER = 500
#: So many such calls are under way: one is put together while the server writes another. More keep
#: the event loop from the answers, up to where those count as lost.
_TOGETHER_WORKERS = 3

#: So many of them are read at a time.
_READ_TOGETHER = 16
#: Backoff in seconds, first and most: while Redis is away, and of one object that is not applied.
_QUEUE_WAITS, _OBJECT_WAITS = (0.2, 5.0), (1.0, 60.0)


class ReconcileQueue:
    """The service; one for each term of a leader."""

    def __init__(
        self,
        term: TermContext,
        *,
        observations: Observations,
        reconcile: reconcile.Reconcile,
        reporter: Reporter,
    ) -> None:
        self._observations = observations
        self._tasks = observations.tasks
        self._large = observations.large
        self._reconcile = reconcile
        self._term = term
        self._reporter = reporter
        self._object_waits: dict[str, Iterator[float]] = {}
        self._queue_waits = _backoff(_QUEUE_WAITS)
        self.outages = 0

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced where a newer leader has been here."""
        batches = Batches(self._handle, _MOST_TOGETHER, _TOGETHER_WORKERS)
        await self._tasks.run(self._handle_alone, WORKERS, batches)

    # -- one object ------------------------------------------------------------------------------

    async def _handle_alone(self, task: Task) -> float | None:
        """One that is not new; a large one once it has its place."""
        if task.seen.deleted or not task.is_large:
            return (await self._handle([task], is_alone=True))[0]
        namespace, began = task.seen.namespace, self._term.clock.monotonic()
        if seconds := self._large.begin(namespace, began):
            return seconds
        try:
            # The API server reads the whole object and tries its Job: not when slots are due.
            await self._term.clock.sleep(
                clocks.seconds_to_lull(self._term.clock.now_us(), takes_long=True)
            )
            began = self._term.clock.monotonic()
            (again,) = await self._handle([task], is_alone=True)
        finally:
            self._large.end(namespace, task.size, began, self._term.clock.monotonic())
        if again is None and self._tasks.newest(task.seen.uid) is None:
            self._large.forget(task.seen.uid)
        return again

    async def _handle(self, tasks: list[Task], *, is_alone: bool = False) -> list[float | None]:
        """Read these, bring them into the queue and record what came of it.

        Args:
            tasks: new objects, or one of any kind that is alone.
            is_alone: whether what has to be known first may be asked for; others would wait for it.

        Returns:
            Seconds until the next try of each, None = it is done, or was put into the queue of
            tasks once more to be looked at alone.
        """
        waits: dict[str, float | None] = {}
        tasks_read = await self._read_all(tasks, waits, is_alone=is_alone)
        if not tasks_read:
            return [waits.get(task.seen.uid) for task in tasks]
        try:
            await faults.reach(FaultPoint.AFTER_SCHEDULE_READ)
            applied = await self._apply(tasks_read, is_alone=is_alone)
        except (queue_errors.Fenced, queue_errors.LayoutChanged):
            raise
        except errors.TryLater as trouble:
            return [self._queue_is_away(tasks_read, trouble)] * len(tasks)
        except Exception as bug:  # noqa: BLE001 - a bug in one object must not stop the others
            if is_alone:
                return [self._went_wrong(tasks_read[0], bug)]
            applied = [None] * len(tasks_read)  # whose bug it is shows when each is alone
        else:
            self._queue_answers()
        results: Counter[str] = Counter()
        for task, one in zip(tasks_read, applied, strict=True):
            if one is None:
                self._observations.look_alone(task)
                continue
            try:
                waits[task.seen.uid] = self._record(task, one, results)
            except (queue_errors.Fenced, queue_errors.LayoutChanged):
                raise
            except Exception as bug:  # noqa: BLE001 - as above
                waits[task.seen.uid] = self._went_wrong(task, bug)
        if any(applied):
            self._count(results, tasks_read)
        return [waits.get(task.seen.uid) for task in tasks]

    async def _read_all(
        self, tasks: list[Task], waits: dict[str, float | None], *, is_alone: bool
    ) -> list[Task]:
        """Those that are to be applied here, with their texts; ``waits`` has the unreadable."""
        places = asyncio.Semaphore(_READ_TOGETHER)

        async def read(task: Task) -> Task | None:
            async with places:
                try:
                    return await self._with_text(task)
                except kube_errors.ApiError as trouble:
                    telemetry.logger.warning(
                        "schedule not read", schedule=task.seen.identity, error=str(trouble)
                    )
                    waits[task.seen.uid] = self._object_wait(task.seen.uid)
                except Exception as bug:  # noqa: BLE001 - in one object must not stop the others
                    waits[task.seen.uid] = self._went_wrong(task, bug)
                return None

        texts: list[Task | None] = [*tasks]
        if any(task.is_unread for task in tasks):
            texts = await asyncio.gather(*map(read, tasks))
        found = []
        for before, task in zip(tasks, texts, strict=True):
            if task is None:
                continue
            is_place_missing = task.is_large and not before.is_large
            if is_place_missing or not (is_alone or self._observations.is_new(task)):
                self._observations.look_alone(task)
            elif task.seen.deleted or not self._observations.has_applied(task.seen):
                found.append(task)  # an older state must not undo what a newer one did
            else:
                self._object_waits.pop(task.seen.uid, None)
        return found

    async def _with_text(self, task: Task) -> Task | None:
        """With the object as it is now; None where that is gone, which the watch shows too."""
        if not task.is_unread:
            return task
        item = await schedules.read(
            self._term.api, task.seen.namespace, task.seen.name, not_before=task.seen.version
        )
        if item is None or item.metadata.uid != task.seen.uid:
            return None
        seen = observed.of_object(item)
        if self._observations.is_deleted(seen.uid):
            return None
        if seen.deleted:
            self._observations.bury(seen)
            return None
        self._reporter.adopt(seen)
        return msgspec.structs.replace(
            task,
            seen=seen,
            is_unread=False,
            size=seen.size,
            is_absent=task.is_absent or observations.is_unanswered(seen),
        )

    async def _apply(self, tasks: list[Task], *, is_alone: bool) -> list[reconcile.Applied | None]:
        """As ``Reconcile.apply``; a deletion comes alone."""
        if tasks[0].seen.deleted:
            await self._remove(tasks[0].seen)
            return [_REMOVED]
        for task in tasks:
            if task.went_back:
                self._reconcile.forget(task.seen.uid)
                self._reporter.adopt(task.seen)  # it may have been forgotten meanwhile
        now_us = self._term.clock.now_us()
        looks = [
            reconcile.Look(
                seen=task.seen,
                status=self._status(task.seen),
                since_us=task.since_us,
                acts_us=now_us,
                # Unless this term has armed another generation of it in the meantime.
                is_absent=task.is_absent and not self._observations.has_applied_any(task.seen.uid),
                replaces=task.replaces,
            )
            for task in tasks
        ]
        return await self._reconcile.apply(looks, is_alone=is_alone)

    async def _remove(self, seen: Observed) -> None:
        await self._term.services.runs.schedule_leaves(seen)
        await self._reconcile.remove(seen)
        self._reconcile.forget(seen.uid)
        self._reporter.forget(seen.uid)
        self._term.services.runs.schedule_changed(seen)

    def _status(self, seen: Observed) -> plan.PublishedStatus:
        """What the status says, and what has ended since by what this process knows."""
        written = published.of(seen.status)
        known = self._reporter.states.get(seen.uid)
        if known is not None and known.waiting_timing and written.observed_generation < 0:
            # It was looked at, and the object was read before its status said so.
            written = msgspec.structs.replace(
                written,
                observed_generation=known.observed,
                waits=True,
                timing_hash=known.waiting_timing,
            )
        remembered = None if known is None else known.settled_if_folded()
        if remembered is None or not remembered.through_us:
            return written
        settled = newest(written.settled, remembered)
        return msgspec.structs.replace(
            written,
            settled_us=settled.through_us,
            started_us=settled.started_us,
            waiting_us=settled.waiting_us,
            retried_us=tuple(one for one in written.retried_us if one > settled.through_us),
        )

    def _record(
        self, task: Task, applied: reconcile.Applied, results: Counter[str]
    ) -> float | None:
        """Report what the queue holds now; seconds until the next try, None = it is done."""
        seen = task.seen
        if applied is _REMOVED:
            results["removed"] += 1
        elif not self._observations.is_deleted(seen.uid):  # else its removal follows at once
            if task.went_back and _holds(applied, seen):
                self._reporter.went_back(seen)
            if applied.report is not None:
                self._reporter.report(seen.uid, applied.report)
            elif applied.definition is not None:
                self._reporter.held(seen.uid, applied.definition)
            if applied.is_wider:
                self._term.services.completions.widen(seen.uid)
            if not applied.is_final:
                return self._object_wait(seen.uid)
            self._observations.record_applied(seen)
            self._term.services.runs.schedule_changed(seen)
            held = applied.definition
            results["refused" if held is None else _RESULTS[held.state]] += 1
        self._object_waits.pop(seen.uid, None)
        return None

    def _count(self, results: Counter[str], tasks: list[Task]) -> None:
        if len(tasks) > 1:
            telemetry.logger.debug("schedules applied", results=dict(results))
            return
        seen = tasks[0].seen
        telemetry.logger.debug(
            "schedule applied",
            namespace=seen.namespace,
            schedule=seen.name,
            generation=seen.generation,
            result=next(iter(results), "again"),
        )

    # -- trouble ---------------------------------------------------------------------------------

    def _queue_is_away(self, tasks: list[Task], trouble: errors.TryLater) -> float:
        self._tasks.pause(trouble.retry_after_seconds or next(self._queue_waits))
        for task in tasks:
            self._report_waiting(
                task, Reason.QUEUE_UNAVAILABLE, f"Redis cannot be asked: {trouble}"
            )
        if self._term.health.unwell("queue", str(trouble)):
            self.outages += 1
            telemetry.logger.warning(
                "queue unavailable", error=str(trouble), unapplied=len(self._tasks) + 1
            )
        return 0.0

    def _queue_answers(self) -> None:
        if self._term.health.well("queue"):
            telemetry.logger.info("queue available")
            self._queue_waits = _backoff(_QUEUE_WAITS)

    def _went_wrong(self, task: Task, bug: Exception) -> float:
        wait = self._object_wait(task.seen.uid)
        with structlog.contextvars.bound_contextvars(
            namespace=task.seen.namespace, schedule=task.seen.name, uid=task.seen.uid
        ):
            telemetry.logger.error(
                "schedule not applied", error=repr(bug), retry_seconds=round(wait, 1), exc_info=bug
            )
        self._report_waiting(
            task,
            Reason.INTERNAL_ERROR,
            f"Duepoint could not apply this generation ({type(bug).__name__}); this is a bug, "
            "please report it with the operator's log; it is tried again",
        )
        return wait

    def _report_waiting(self, task: Task, reason: Reason, message: str) -> None:
        """Only of a change that is not applied; the others lack nothing that they would see."""
        seen = task.seen
        known = self._reporter.states.get(seen.uid)
        if seen.deleted or (known is not None and known.answered >= seen.generation):
            return
        settled_us, timing_hash = 0, ""
        if known is None or not known.runs().settled_us:  # nothing of it was ever armed
            timing_hash = self._reconcile.timing_hash(seen)
            is_later = known is not None and 0 <= known.observed < seen.generation
            if known is not None and is_later and known.is_edit(timing_hash):
                settled_us = task.since_us  # else the next look would take it for a creation
        report = statusconditions.waiting(
            seen.generation, reason, message, settled_us=settled_us, timing_hash=timing_hash
        )
        self._reporter.report(seen.uid, report)

    def _object_wait(self, uid: str) -> float:
        return next(self._object_waits.setdefault(uid, _backoff(_OBJECT_WAITS)))


def _backoff(seconds: tuple[float, float]) -> Iterator[float]:
    return services.backoff(first_seconds=seconds[0], most_seconds=seconds[1])


def _holds(applied: reconcile.Applied, seen: Observed) -> bool:
    """Whether the queue holds this very generation, or nothing because it is refused."""
    if applied.definition is None:
        return applied.report is not None
    return applied.definition.generation == seen.generation


#: The result of a deletion.
_REMOVED = reconcile.Applied(report=None)
#: By state of what the queue holds.
_RESULTS = tuple(state.name.lower() for state in State)
