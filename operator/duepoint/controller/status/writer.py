"""The only writer of statuses, of Schedules, ScheduleRuns and ScheduleSets.

An owner of statuses (``StatusSource``) says that a status has changed, and how soon it is to be
written. The writer asks for the status when its turn has come, so
it is always written in its newest state, and replaces it as a whole, guarded by the object's uid. A
status that would be the same is not written. All writes of a term, of whichever kind, keep to one
rate, which grows while statuses are late, and a few are under way at a time.

What follows an answer depends on the answer. A write that failed is repeated without a read, which
is harmless. One that found another object under the name is dropped. One that was refused comes
from a leader that is behind, or the schema does not know it: its source takes over what the API
server has, and it is written again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from duepoint import clock as clocks
from duepoint import errors, faults, services, telemetry
from duepoint.controller.observed import LARGE_BYTES
from duepoint.controller.term import TermContext
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules

#: A status follows the runs of its Schedule by no more than this when the cluster is calm.
STALENESS_SECONDS = 2.0
#: The same for a Schedule that never pauses, while its results stay the same.
STEADY_SECONDS = 10.0
#: A change so soon after a write was allowed had been waiting for it.
_WAITED_SECONDS = 0.5
#: A large object waits a second for each of these bytes, and no longer than this.
_BYTES_PER_SECOND = 4 * 1024
_MOST_DISTANCE_SECONDS = 60.0
#: When the rate is not enough, an urgent status precedes changes of runs younger than this.
_PRECEDENCE_SECONDS = 30.0
#: The wait between two looks whether writes may begin while all objects are listed.
_ARMING_SECONDS = 0.25
_PARALLEL_WRITES = 8
#: So many entries of the queue may be of uids that became due sooner, or were dropped.
_FORMER_DUES = 1_000
#: What is refused for so long, by an older schema for example, is given up.
_REFUSED_SECONDS = 3600.0

#: A status to write, and whose it is.
Rendered = tuple[schedules.StatusTarget, Mapping[str, Any]]


class StatusSource(Protocol):
    """The owner of the statuses; all by the uid of their object."""

    async def render(self, uid: str) -> Rendered | None:
        """The status as it should be; None where it is published already. Raises TryLater."""
        ...

    def written(self, uid: str, fields: Mapping[str, Any], version: int) -> None:
        """The API server has this status now; ``version`` as ``schedules.StatusWritten`` has it."""
        ...

    async def refused(self, uid: str) -> None:
        """A newer writer may have been there: what is known of the published status is wrong.

        Where it is, the source adopts the status that is there. Raises ApiError.
        """
        ...

    def next_change_in(self, uid: str) -> float | None:
        """Seconds until the status changes without any event; None = never."""
        ...


class WriteQueue:
    """Uids, each once, with the instant at which it is due; the soonest first. No clock."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def bring_forward(self, uid: str, due: float) -> bool:
        """The uid is due then, or sooner if it was; True where it is the soonest of all now."""
        if self._due.get(uid, due + 1) <= due:
            return False
        self._due[uid] = due
        heapq.heappush(self._heap, (due, uid))
        if len(self._heap) > 2 * len(self._due) + _FORMER_DUES:
            self._heap = [(due, uid) for uid, due in self._due.items()]
            heapq.heapify(self._heap)
        return self._heap[0][1] == uid

    def drop(self, uid: str) -> None:
        """The uid is not due any more."""
        self._due.pop(uid, None)

    def first(self) -> tuple[float, str] | None:
        """When the soonest is due, and which that is; None where none is."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None


class _Pending(msgspec.Struct):
    """One object whose status was, or is to be, written; instants are monotonic seconds.

    Attributes:
        size: bytes of the object where it is large, else 0.
        written_at: when the status was written last.
        distance: seconds between that write and the next one about runs.
        changed_at: since when its status has changed; None = the published one is true.
        urgency: 1 = it precedes others, 2 = it does not even wait for the rate.
        due_after_write: when it is due again by what changed while it was being written.
        refused_since: when it was refused first; None = the last answer was another one.
    """

    size: int = 0
    written_at: float = float("-inf")
    distance: float = STALENESS_SECONDS
    changed_at: float | None = None
    urgency: int = 0
    writing: bool = False
    due_after_write: float | None = None
    waits: Iterator[float] | None = None
    refused_since: float | None = None


class StatusWriter:
    """The service; one for each source and term.

    Args:
        part: of the health: what is unwell while statuses cannot be written.
        is_arming: whether a takeover still lists all objects; nothing is written until it has.
            Beside 100,000 objects a write costs the API server as much time as a page of the list.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        source: StatusSource,
        part: str,
        is_arming: Callable[[], bool] = lambda: False,
    ) -> None:
        self._term = term
        self._source = source
        self._part = part
        self._is_arming = is_arming
        self._queue = WriteQueue()
        self._pending: dict[str, _Pending] = {}
        self._under_way = 0
        self._pause_until = 0.0
        self._some_due = asyncio.Event()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._some_due.clear()
                wait = self._wait_seconds()
                if wait is None or wait > 0:
                    await clocks.wait_for(self._some_due, wait, self._term.clock)
                elif (first := self._queue.first()) is not None:
                    self._queue.drop(first[1])
                    self._under_way += 1
                    group.create_task(self._write_next(first[1]))

    # -- what the source says --------------------------------------------------------------------

    def changed(
        self, uid: str, seconds: float = 0.0, *, urgent: bool = False, unlimited: bool = False
    ) -> None:
        """The status has changed and is due in so many seconds.

        An urgent one precedes others; an unlimited one does not even wait for the rate.
        """
        pending, now = self._pending_of(uid), self._term.clock.monotonic()
        pending.urgency = max(pending.urgency, 2 * unlimited, urgent)
        if pending.changed_at is None:
            pending.changed_at = now
        due = now + seconds
        if urgent or unlimited:
            due = now - _PRECEDENCE_SECONDS * pending.urgency
        if pending.writing:
            pending.due_after_write = min(due, pending.due_after_write or due)
        else:
            self._bring_forward(uid, due)

    def look(self, uid: str, seconds: float) -> None:
        """The status may have changed by then, though no change is known."""
        pending = self._pending.get(uid)
        if pending is None or not pending.writing:
            self._bring_forward(uid, self._term.clock.monotonic() + seconds)

    def hurry(self, uid: str) -> None:
        """The next write waits no longer than the shortest interval."""
        self._pending_of(uid).distance = STALENESS_SECONDS

    def resize(self, uid: str, size: int) -> None:
        """The object has so many bytes; the status of a large one is written less often."""
        if size >= LARGE_BYTES or uid in self._pending:
            self._pending_of(uid).size = size if size >= LARGE_BYTES else 0

    def forget(self, uid: str) -> None:
        """The object is gone; no status of it has to be written."""
        self._queue.drop(uid)
        self._pending.pop(uid, None)

    def rest(self, uid: str) -> float:
        """Seconds until a change of runs may be written.

        A status follows its runs by two seconds. For a Schedule that runs every second that would
        be a write every two seconds, each as expensive for the API server as a create, that says
        nothing new. So while a change waits whenever a write is allowed again, and the results stay
        the same, the distance doubles up to ten seconds. A write for a large object costs the API
        server a hundred times as much, so its distance follows from the size.
        """
        pending = self._pending.get(uid)
        if pending is None:
            return 0.0
        least = min(pending.size / _BYTES_PER_SECOND, _MOST_DISTANCE_SECONDS)
        after = pending.written_at + max(pending.distance, least)
        return max(0.0, after - self._term.clock.monotonic())

    # -- whose turn it is ------------------------------------------------------------------------

    def _pending_of(self, uid: str) -> _Pending:
        pending = self._pending.get(uid)
        if pending is None:
            pending = self._pending[uid] = _Pending()
        return pending

    def _bring_forward(self, uid: str, due: float) -> None:
        if self._queue.bring_forward(uid, due):
            self._some_due.set()

    def _wait_seconds(self) -> float | None:
        """Seconds until the first status may be written, None = for ever; 0 uses up a write."""
        first = self._queue.first()
        if first is None or self._under_way >= _PARALLEL_WRITES:
            return None
        due, uid = first
        now = self._term.clock.monotonic()
        if (wait := max(due, self._pause_until) - now) > 0:
            return wait
        if self._is_arming():
            return _ARMING_SECONDS
        pending = self._pending.get(uid)
        if pending is not None and pending.urgency > 1:
            return 0.0
        changed_at = None if pending is None else pending.changed_at
        return self._term.allowance.take(now, late_seconds=now - max(due, changed_at or due))

    # -- writing ---------------------------------------------------------------------------------

    async def _write_next(self, uid: str) -> None:
        pending = self._pending_of(uid)
        try:
            wait = await self._write_one(uid, pending)
        finally:
            self._under_way -= 1
            self._some_due.set()
        if wait is None:
            return
        await self._term.clock.sleep(wait)
        if self._is_current(uid, pending):
            precedence = _PRECEDENCE_SECONDS * pending.urgency
            self._bring_forward(uid, self._term.clock.monotonic() - precedence)

    async def _write_one(self, uid: str, pending: _Pending) -> float | None:
        """Seconds until it is tried again; None = it is written."""
        changed_at, urgency = pending.changed_at, pending.urgency
        pending.writing, pending.changed_at, pending.urgency = True, None, 0
        try:
            wait = await self._write(uid, pending)
        except Exception as bug:  # noqa: BLE001 - a bug in one status must not stop the others
            telemetry.logger.error("status not written", error=repr(bug), uid=uid, exc_info=bug)
            wait = _next_wait(pending)
        finally:
            pending.writing = False
        if wait is None or not self._is_current(uid, pending):
            self._finish(uid, pending, changed_at)
            return None
        pending.changed_at = changed_at
        pending.urgency = max(pending.urgency, urgency)
        return wait

    async def _write(self, uid: str, pending: _Pending) -> float | None:
        """None where nothing is left to write of what was known at the beginning."""
        try:
            rendered = await self._source.render(uid)
            if rendered is None:
                return None
            target, fields = rendered
            await faults.reach(FaultPoint.BEFORE_STATUS_WRITE)
            answer = await schedules.write_status(self._term.api, target, fields)
            await faults.reach(FaultPoint.AFTER_STATUS_WRITE)
            if isinstance(answer, schedules.StatusRefused):
                return await self._refused(uid, pending, target, answer.message)
        except (errors.TryLater, kube_errors.ApiError) as trouble:
            return self._failed(pending, trouble)
        self._term.health.well(self._part)
        pending.waits = pending.refused_since = None
        if isinstance(answer, schedules.StatusWritten):
            now = self._term.clock.monotonic()
            has_waited = now <= pending.written_at + pending.distance + _WAITED_SECONDS
            longer = min(2 * pending.distance, STEADY_SECONDS)
            pending.distance = longer if has_waited else STALENESS_SECONDS
            pending.written_at = now
            self._source.written(uid, fields, answer.version)
        return None

    async def _refused(
        self, uid: str, pending: _Pending, target: schedules.StatusTarget, message: str
    ) -> float | None:
        """None where it is given up."""
        now = self._term.clock.monotonic()
        pending.refused_since = now if pending.refused_since is None else pending.refused_since
        telemetry.logger.warning(
            "status refused",
            namespace=target.namespace,
            name=target.name,
            resource=target.plural,
            error=message,
        )
        await self._source.refused(uid)
        is_given_up = now - pending.refused_since >= _REFUSED_SECONDS
        return None if is_given_up else _next_wait(pending)

    def _failed(self, pending: _Pending, trouble: errors.TryLater | kube_errors.ApiError) -> float:
        wait = _next_wait(pending)
        if isinstance(trouble, errors.TryLater):
            wait = max(wait, trouble.retry_after_seconds or 0.0)
        if isinstance(trouble, kube_errors.ApiError):
            if isinstance(trouble, kube_errors.Throttled):
                pause_until = self._term.clock.monotonic() + (trouble.retry_after_seconds or 1.0)
                self._pause_until = max(self._pause_until, pause_until)
            if self._term.health.unwell(self._part, str(trouble)):
                telemetry.logger.warning("statuses cannot be written", error=str(trouble))
        return wait

    def _finish(self, uid: str, pending: _Pending, changed_at: float | None) -> None:
        """What changed during the write is due again."""
        now = self._term.clock.monotonic()
        if changed_at is not None:
            telemetry.status_staleness_seconds.observe(now - changed_at)
        due, pending.due_after_write = pending.due_after_write, None
        if not self._is_current(uid, pending):
            return
        if (seconds := self._source.next_change_in(uid)) is not None:
            self.look(uid, max(seconds, self.rest(uid)))
        if due is not None:
            self._bring_forward(uid, due)

    def _is_current(self, uid: str, pending: _Pending) -> bool:
        return self._pending.get(uid) is pending


def _next_wait(pending: _Pending) -> float:
    if pending.waits is None:
        pending.waits = services.backoff(first_seconds=0.5, most_seconds=30.0)
    return next(pending.waits)
