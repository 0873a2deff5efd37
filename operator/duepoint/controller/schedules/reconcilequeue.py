"""Every Schedule that somebody saw, brought into the queue by a few workers.

Lists and the watch offer sightings, in any order and as often as they like; this is the one
ordered path for each uid. After a deletion a sighting of the same uid is an old one, and an older
generation never replaces a newer, unless a complete list says so that began after the deletion, or
after the newer one was stored: then the objects were restored. What is known to be applied costs a
dict look-up.

Trouble is told where it belongs. Redis away: all workers wait together, with jitter, and only
objects with a change that is not applied are told. A bug of ours: that object alone is
``Reconciling`` with ``InternalError``, tried again with backoff, while the others go on. A newer
leader: the term ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from duepoint import agreedclock, errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller import largeobjects, observed, plan, statusconditions
from duepoint.controller.observed import Observed
from duepoint.controller.report import Report, Reports
from duepoint.controller.schedules import reconcile
from duepoint.controller.status import published
from duepoint.controller.termevents import TermEvents
from duepoint.controller.workqueue import Together, WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.definitions import reading
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules
from duepoint.runs.watermark import newest
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition, State

#: Their calls share round trips: 32 fill an empty queue in half the CPU time of 8.
WORKERS = 32

#: Objects of which the queue holds nothing, armed together: an emptied queue is filled so.
_NEW_TOGETHER = 500
#: So many of those are under way: one is put together while the server writes another. More keep
#: the event loop from the answers, up to where those count as lost.
_TOGETHER_WORKERS = 3

#: Uids remembered as deleted; a list that began before a deletion ends long before this many.
_TOMBSTONES = 100_000
#: So many of them are read at a time.
_READ_TOGETHER = 16
#: A change that is no edit is mostly a status that we write: its answer has come by then.
_RESTATED_SECONDS = 1.0
#: What is to be armed waits for clocks that agree, and looks this often.
_TIME_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Backoff in seconds: while Redis is away, and of one object that will not be applied."""

    queue_first: float = 0.2
    queue_most: float = 5.0
    object_first: float = 1.0
    object_most: float = 60.0


class _Task(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One look.

    Attributes:
        is_unread: its text is not kept: it is read when it is its turn.
        is_large: it is known to be large.
        is_absent: the queue was found to hold nothing of the uid, or is expected to.
        is_alone: it was looked at together with others, and needs a look of its own.
        went_back: a complete list shows that the objects were restored to this state.
        replaces: with that, the fingerprint of what the queue held before the list began.
    """

    seen: Observed
    since_us: int
    is_unread: bool = False
    is_large: bool = False
    is_absent: bool = False
    is_alone: bool = False
    went_back: bool = False
    replaces: bytes = b""


class ReconcileQueue:
    """The service; one for each term of a leader.

    Args:
        read: the Schedule of what was observed, at least as new; None where there is none; raises
            ApiError.
    """

    def __init__(
        self,
        *,
        reconcile: reconcile.Reconcile,
        read: Callable[[Observed], Awaitable[schedules.Schedule | None]],
        reports: Reports,
        health: services.Health,
        clock: Clock,
        events: TermEvents,
        workers: int = WORKERS,
        waits: Waits = Waits(),
    ) -> None:
        self._reconcile = reconcile
        self._read = read
        self._reports = reports
        self._health = health
        self._clock = clock
        self._large = largeobjects.LargeObjects()
        self._workers = workers
        self._waits = waits
        self._tasks: WorkQueue[_Task] = WorkQueue(
            clock, Together(self._is_new, self._handle_new, _NEW_TOGETHER, _TOGETHER_WORKERS)
        )
        self._applied: dict[str, int] = {}
        self._deleted: OrderedDict[str, int] = OrderedDict()
        self._deletions = 0
        #: Generations below the applied one, shown by the last complete list.
        self._behind: dict[str, int] = {}
        self._object_waits: dict[str, Iterator[float]] = {}
        self._queue_waits = self._new_queue_waits()
        self.outages = 0
        #: Changes that are no edits, by uid; most of them are status writes of our own.
        self._restated: dict[str, Observed] = {}
        self._any_restated = asyncio.Event()
        self._events = events

    async def run(self) -> None:
        """Work until cancelled; raises queue_errors.Fenced where a newer leader has been here."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tasks.run(self._handle, self._workers))
            group.create_task(self._look_at_restated())

    def observe(self, change: Observed) -> None:
        """The watch shows this version of an object, without its texts.

        A version or a generation that is known costs two look-ups and no more; so a watch may begin
        with everything that there is. Any other is read when it is its turn.
        """
        uid = change.uid
        if uid in self._deleted:
            return
        if change.deleted:
            self._bury(change)
            return
        waiting = self._tasks.newest(uid)
        if waiting is not None and waiting.seen.generation >= change.generation:
            return
        if self._applied.get(uid, -1) < change.generation:
            self._tasks.put(uid, _Task(seen=change, since_us=self._clock.now_us(), is_unread=True))
        elif self._reports.version(uid) < change.version:
            self._restated[uid] = change
            self._any_restated.set()

    async def _look_at_restated(self) -> None:
        """Read what was written by others than us, once our own writes have been answered."""
        while True:
            await self._any_restated.wait()
            await self._clock.sleep(_RESTATED_SECONDS)
            self._any_restated.clear()
            changes, self._restated = self._restated, {}
            for uid, change in changes.items():
                is_known = self._reports.version(uid) >= change.version
                if not (is_known or uid in self._deleted or self._tasks.newest(uid) is not None):
                    now_us = self._clock.now_us()
                    self._tasks.put(uid, _Task(seen=change, since_us=now_us, is_unread=True))

    def offer(self, seen: Observed) -> None:
        """This state of an object was seen.

        One that nobody has answered yet is taken for new: where it is not, the queue refuses.
        """
        self._offer(seen, is_absent=_is_unanswered(seen))

    def _offer(
        self,
        seen: Observed,
        *,
        is_absent: bool,
        went_back: bool = False,
        replaces: bytes = b"",
    ) -> None:
        if seen.uid in self._deleted:
            return
        if seen.deleted:
            self._bury(seen)
            return
        self._reports.adopt(seen)
        if self._applied.get(seen.uid, -1) >= seen.generation:
            return
        waiting = self._tasks.newest(seen.uid)
        if went_back or waiting is None or waiting.seen.generation < seen.generation:
            task = _Task(
                seen=seen,
                since_us=self._clock.now_us(),
                is_absent=is_absent,
                went_back=went_back,
                replaces=replaces,
            )
            self._tasks.put(seen.uid, self._as_it_waits(task))

    def _as_it_waits(self, task: _Task) -> _Task:
        """With its text where that is small, or few large ones wait."""
        seen = task.seen
        if self._large.may_wait(seen.uid, seen.size):
            is_large = seen.size >= largeobjects.LARGE_BYTES
            return msgspec.structs.replace(task, is_large=is_large)
        return msgspec.structs.replace(
            task, seen=seen.without_texts(), is_unread=True, is_large=True
        )

    def deletions(self) -> int:
        """How many deletions were seen so far: a list that begins now shows none of them."""
        return self._deletions

    def offer_known(
        self, seen: Observed, known: reading.StoredIdentity | None, *, deletions: int = 0
    ) -> None:
        """As ``offer`` of a complete, consistent list, told what the queue held before it began.

        What is in order needs no look any more. What the list shows of an older state than the
        queue held before it began, or of a uid that was deleted before it began, was restored.

        Args:
            seen: the object.
            known: what the queue held of it; None = nothing.
            deletions: as ``deletions`` said before the list began.
        """
        came_back = not seen.deleted and self._deleted.get(seen.uid, deletions) < deletions
        if came_back:
            del self._deleted[seen.uid]
        went_back = False
        if known is None:
            went_back = self._is_behind_again(seen)
            # Armed since the definitions were read, or lost: looking again tells. A list that is
            # older than what was applied says nothing.
            if went_back or self._applied.get(seen.uid) == seen.generation:
                self._applied.pop(seen.uid, None)
        elif known.generation > seen.generation:
            went_back = not seen.deleted and seen.uid not in self._deleted
            if went_back:
                self._applied.pop(seen.uid, None)
        elif known.generation == seen.generation and not seen.deleted:
            self._note_stored(seen, known)
        self._offer(
            seen,
            is_absent=known is None,
            went_back=went_back or came_back,
            replaces=known.fingerprint if known is not None and went_back else b"",
        )

    def _note_stored(self, seen: Observed, known: reading.StoredIdentity) -> None:
        """The queue holds this generation: in order, if its content is the same."""
        if known.fingerprint != self._reconcile.fingerprint(seen):
            if self._applied.get(seen.uid) == seen.generation:
                del self._applied[seen.uid]
        elif published.has_accepted(seen.status, seen.generation):
            self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)

    def _is_behind_again(self, seen: Observed) -> bool:
        """Whether a second list shows the same generation, below one that was applied."""
        behind = self._behind.pop(seen.uid, None)
        if self._applied.get(seen.uid, -1) <= seen.generation:
            return False
        if behind != seen.generation:
            self._behind[seen.uid] = seen.generation
        return behind == seen.generation

    def offer_absent(self, namespace: str, name: str, uid: str) -> None:
        """A complete list shows that the object is gone."""
        if uid not in self._deleted:
            self._bury(observed.of_name(namespace, name, uid, deleted=True))

    def refuse(self, namespace: str, name: str, uid: str, refusal: Report) -> None:
        """This generation is refused after it was armed: it leaves the queue until an edit."""
        generation = refusal.generation
        self._reconcile.refuse(uid, refusal)
        waiting = self._tasks.newest(uid)
        is_old = waiting is not None and waiting.seen.generation >= generation
        if is_old or uid in self._deleted or self._applied.get(uid, -1) > generation:
            return
        self._applied.pop(uid, None)
        seen = observed.of_name(namespace, name, uid, generation=generation)
        self._tasks.put(uid, _Task(seen=seen, since_us=self._clock.now_us()))

    def prove(self, uid: str, generation: int) -> None:
        """A Job of this generation was created: no dry run needs to say that it can be."""
        self._reconcile.prove(uid, generation)
        waiting = self._tasks.newest(uid)
        if waiting is not None:
            self._tasks.put(uid, waiting)

    def unapplied(self) -> int:
        """Objects that wait to be applied."""
        return len(self._tasks)

    # -- one object ------------------------------------------------------------------------------

    def _bury(self, seen: Observed) -> None:
        self._deleted[seen.uid] = self._deletions
        self._deletions += 1
        if len(self._deleted) > _TOMBSTONES:
            self._deleted.popitem(last=False)
        self._applied.pop(seen.uid, None)
        self._large.forget(seen.uid)
        self._tasks.put(seen.uid, _Task(seen=seen, since_us=self._clock.now_us()))

    async def _handle(self, task: _Task) -> float | None:
        if task.seen.deleted:
            return await self._handle_one(task)
        if not task.is_large:
            try:
                read = await self._with_text(task)
            except kube_errors.ApiError as trouble:
                return self._object_is_away(task, trouble)
            if read is None:
                return None
            if not read.is_large:
                return await self._handle_one(read)
            self._put_unless_newer(read)
            return None
        return await self._handle_large(task)

    async def _handle_large(self, task: _Task) -> float | None:
        began = self._clock.monotonic()
        if seconds := self._large.begin(task.seen.namespace, began):
            return seconds
        try:
            read = await self._with_text(task)
            again = None if read is None else await self._handle_one(read)
        except kube_errors.ApiError as trouble:
            again = self._object_is_away(task, trouble)
        finally:
            self._large.end(task.seen.namespace, began, self._clock.monotonic())
        if again is None and self._tasks.newest(task.seen.uid) is None:
            self._large.forget(task.seen.uid)
        return again

    async def _handle_one(self, task: _Task) -> float | None:
        began = time.perf_counter()
        await self._wait_for_time()
        try:
            done = await self._settle(task)
        except (queue_errors.Fenced, queue_errors.LayoutChanged):
            raise
        except errors.TryLater as trouble:
            return self._queue_is_away(task, trouble)
        except Exception as bug:  # noqa: BLE001 - one object's trouble is nobody else's
            return self._went_wrong(task, bug)
        self._queue_answers()
        telemetry.reconcile_seconds.observe(time.perf_counter() - began)
        if done:
            self._object_waits.pop(task.seen.uid, None)
            return None
        return self._object_wait(task.seen.uid)

    async def _with_text(self, task: _Task) -> _Task | None:
        """With the object as it is now; None where that is gone, which the watch shows too."""
        if not task.is_unread:
            return task
        item = await self._read(task.seen)
        if item is None or item.metadata.uid != task.seen.uid:
            return None
        seen = observed.of_object(item)
        if seen.uid in self._deleted:
            return None
        if seen.deleted:
            self._bury(seen)
            return None
        self._reports.adopt(seen)
        return msgspec.structs.replace(
            task,
            seen=seen,
            is_unread=False,
            is_large=seen.size >= largeobjects.LARGE_BYTES,
            is_absent=task.is_absent or _is_unanswered(seen),
        )

    def _object_is_away(self, task: _Task, trouble: kube_errors.ApiError) -> float:
        telemetry.logger.warning(
            "schedule not read", schedule=task.seen.identity, error=str(trouble)
        )
        return self._object_wait(task.seen.uid)

    async def _wait_for_time(self) -> None:
        """Nothing is armed while no two clocks agree what time it is; readiness says so."""
        while agreedclock.distrust(self._clock):
            await self._clock.sleep(_TIME_SECONDS)

    def _is_new(self, task: _Task) -> bool:
        """The queue holds nothing of it, it is thought, and this term has armed nothing since."""
        if task.is_alone or task.went_back or task.is_large:
            return False  # hundreds of large ones would be decoded at once
        is_new = task.is_absent or (task.is_unread and task.seen.generation == 1)
        return is_new and not task.seen.deleted and task.seen.uid not in self._applied

    async def _handle_new(self, tasks: list[_Task]) -> list[float | None]:
        """Together what can be armed together; the others get a look of their own."""
        answers: list[float | None] = [None] * len(tasks)
        began = time.perf_counter()
        await self._wait_for_time()
        tasks = await self._read_together(tasks)
        if not tasks:
            return answers
        looks = [
            reconcile.Look(seen=task.seen, shown=self._shown(task.seen), since_us=task.since_us)
            for task in tasks
        ]
        try:
            found = await self._reconcile.apply_new(looks)
        except (queue_errors.Fenced, queue_errors.LayoutChanged):
            raise
        except errors.TryLater as trouble:
            wait = self._queue_is_away(tasks[0], trouble)
            for task in tasks[1:]:
                self._tell_waiting(task, Reason.QUEUE_UNAVAILABLE, _away(trouble))
            return [wait] * len(answers)
        except Exception:  # noqa: BLE001 - whose bug it is shows when each is looked at alone
            found = [None] * len(tasks)
        else:
            self._queue_answers()
        self._note_together(tasks, found)
        if any(found):
            telemetry.reconcile_seconds.observe(time.perf_counter() - began)
        return answers

    async def _read_together(self, tasks: list[_Task]) -> list[_Task]:
        """Those that can be armed together, with their texts; the others get their own look."""
        places = asyncio.Semaphore(_READ_TOGETHER)

        async def read(task: _Task) -> _Task | None:
            async with places:
                try:
                    return await self._with_text(task)
                except kube_errors.ApiError:
                    return msgspec.structs.replace(task, is_alone=True)

        texts = await asyncio.gather(*map(read, tasks))
        found = [task for task in texts if task is not None]
        for task in found:
            if not self._is_new(task) or task.is_unread:
                self._put_unless_newer(msgspec.structs.replace(task, is_alone=True))
        return [task for task in found if self._is_new(task) and not task.is_unread]

    def _note_together(self, tasks: list[_Task], found: Sequence[reconcile.Applied | None]) -> None:
        results: Counter[str] = Counter()
        for task, applied in zip(tasks, found, strict=True):
            if applied is None:
                self._look_alone(task)
            elif self._note_applied(task, applied):
                results[_result(applied.definition)] += 1
        for result, count in results.items():
            telemetry.reconciled_total.labels(result).inc(count)
            telemetry.logger.debug("schedules applied together", result=result, count=count)

    def _look_alone(self, task: _Task) -> None:
        """Right after this."""
        self._put_unless_newer(msgspec.structs.replace(task, is_alone=True))

    def _put_unless_newer(self, task: _Task) -> None:
        """Unless a newer state has been seen meanwhile."""
        if self._tasks.newest(task.seen.uid) is None:
            self._tasks.put(task.seen.uid, self._as_it_waits(task))

    async def _settle(self, task: _Task) -> bool:
        seen = task.seen
        if seen.deleted:
            await self._events.schedule_leaving(seen)
            await self._reconcile.remove(seen)
            self._reconcile.forget(seen.uid)
            self._reports.forget(seen.uid)
            self._events.schedule_applied(seen)
            telemetry.reconciled_total.labels("removed").inc()
            return True
        if self._applied.get(seen.uid, -1) >= seen.generation:
            return True  # an old sighting must not undo what a newer one did
        if task.went_back:
            self._reconcile.forget(seen.uid)
            self._reports.adopt(seen)  # it may have been forgotten meanwhile
        applied = await self._reconcile.apply(
            seen,
            self._shown(seen),
            task.since_us,
            # Unless this term has armed another generation of it in the meantime.
            is_absent=task.is_absent and seen.uid not in self._applied,
            replaces=task.replaces,
            acts_us=self._clock.now_us(),
        )
        if self._note_applied(task, applied):
            self._log(seen, applied.definition)
        return applied.is_final or seen.uid in self._deleted

    def _shown(self, seen: Observed) -> plan.Shown:
        """What the status says, and what has ended since by what this process knows."""
        written = published.of(seen.status)
        remembered = self._reports.settled(seen.uid)
        if remembered is None or not remembered.through_us:
            return written
        settled = newest(written.settled, remembered)
        return msgspec.structs.replace(
            written,
            settled_us=settled.through_us,
            started_us=settled.started_us,
            waiting_us=settled.waiting_us,
        )

    def _note_applied(self, task: _Task, applied: reconcile.Applied) -> bool:
        """Whether this generation is done with."""
        seen = task.seen
        if seen.uid in self._deleted:  # deleted meanwhile; its removal follows at once
            return False
        if task.went_back and _holds(applied, seen):
            self._reports.went_back(seen)
        if applied.report is not None:
            self._reports.report(seen.uid, applied.report)
        elif applied.definition is not None:
            self._reports.held(seen.uid, applied.definition)
        if applied.is_wider:
            self._events.schedule_widened(seen.uid)
        if applied.is_final:
            self._object_waits.pop(seen.uid, None)
            self._applied[seen.uid] = max(self._applied.get(seen.uid, -1), seen.generation)
            self._events.schedule_applied(seen)
        return applied.is_final

    def _log(self, seen: Observed, held: Definition | None) -> None:
        result = _result(held)
        telemetry.reconciled_total.labels(result).inc()
        telemetry.logger.debug(
            "schedule applied",
            namespace=seen.namespace,
            schedule=seen.name,
            generation=seen.generation,
            result=result,
        )

    # -- trouble ---------------------------------------------------------------------------------

    def _queue_is_away(self, task: _Task, trouble: errors.TryLater) -> float:
        wait = trouble.retry_after_seconds or next(self._queue_waits)
        self._tasks.pause(wait)
        self._tell_waiting(task, Reason.QUEUE_UNAVAILABLE, _away(trouble))
        if self._health.unwell("queue", str(trouble)):
            self.outages += 1
            telemetry.logger.warning(
                "queue unavailable", error=str(trouble), unapplied=len(self._tasks) + 1
            )
        return 0.0

    def _queue_answers(self) -> None:
        if self._health.well("queue"):
            telemetry.logger.info("queue available")
            self._queue_waits = self._new_queue_waits()

    def _new_queue_waits(self) -> Iterator[float]:
        return services.backoff(
            first_seconds=self._waits.queue_first, most_seconds=self._waits.queue_most
        )

    def _went_wrong(self, task: _Task, bug: Exception) -> float:
        wait = self._object_wait(task.seen.uid)
        with structlog.contextvars.bound_contextvars(
            namespace=task.seen.namespace, schedule=task.seen.name, uid=task.seen.uid
        ):
            telemetry.logger.error(
                "schedule not applied", error=repr(bug), retry_seconds=round(wait, 1), exc_info=bug
            )
        telemetry.reconciled_total.labels("error").inc()
        self._tell_waiting(
            task,
            Reason.INTERNAL_ERROR,
            f"Duepoint could not apply this generation ({type(bug).__name__}); this is a bug, "
            "please report it with the operator's log; it is tried again",
        )
        return wait

    def _tell_waiting(self, task: _Task, reason: Reason, message: str) -> None:
        """Only of a change that is not applied; the others lack nothing that they would see."""
        seen = task.seen
        if seen.deleted or self._reports.answered_generation(seen.uid) >= seen.generation:
            return
        self._reports.report(seen.uid, statusconditions.waiting(seen.generation, reason, message))

    def _object_wait(self, uid: str) -> float:
        waits = self._object_waits.setdefault(
            uid,
            services.backoff(
                first_seconds=self._waits.object_first, most_seconds=self._waits.object_most
            ),
        )
        return next(waits)


def _is_unanswered(seen: Observed) -> bool:
    """Whether it is as it was made: nothing of it can be in the queue."""
    return seen.generation == 1 and published.observed_generation(seen.status) < 1


def _holds(applied: reconcile.Applied, seen: Observed) -> bool:
    """Whether the queue holds this very generation, or nothing because it is refused."""
    if applied.definition is None:
        return applied.report is not None
    return applied.definition.generation == seen.generation


#: By state of what the queue holds.
_RESULTS = tuple(state.name.lower() for state in State)


def _result(held: Definition | None) -> str:
    return "refused" if held is None else _RESULTS[held.state]


def _away(trouble: Exception) -> str:
    return f"Redis cannot be asked: {trouble}"
