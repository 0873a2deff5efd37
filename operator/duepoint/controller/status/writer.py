"""The writer of all statuses: of Schedules, ScheduleRuns and ScheduleSets.

A ``StatusSource`` reports that a status has changed, and how soon it must be written. The writer
renders the status just before it writes, so the status is always the newest. It replaces the whole
status, guarded by the object's uid, and skips a status that has not changed. All writes of a term,
of every kind, share one rate limit, which rises while statuses are late; a few are in flight at a
time.

A write that failed is retried without a read, which is harmless. A write that found another object
under the name is dropped. A write that was refused comes from a leader that is behind, or does not
match the schema: its source adopts the API server's status, and it is written again.
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

#: The longest time that a status lags behind the runs of its Schedule in a calm cluster.
STALENESS_SECONDS = 2.0
#: The same for a Schedule that never pauses, while its results stay the same.
STEADY_SECONDS = 10.0
#: A status written this soon after writing was allowed again counts as having waited for that.
_WAITED_SECONDS = 0.5
#: The status of a large object waits a second for this many bytes of it, up to a limit.
_BYTES_PER_SECOND = 4 * 1024
_MOST_DISTANCE_SECONDS = 60.0
#: When the rate does not suffice, an urgent status precedes run changes younger than this.
_PRECEDENCE_SECONDS = 30.0
#: How often to check whether the list of all objects is done, so that writes may begin.
_ARMING_SECONDS = 0.25
_PARALLEL_WRITES = 8
#: The most stale heap entries, of uids that became due sooner or were dropped.
_FORMER_DUES = 1_000
#: A status that is refused for this long, for example by an older schema, is given up.
_REFUSED_SECONDS = 3600.0

#: The object to write to, and its status.
Rendered = tuple[schedules.StatusTarget, Mapping[str, Any]]


class StatusSource(Protocol):
    """The owner of statuses, by the uid of their object."""

    async def render(self, uid: str) -> Rendered | None:
        """Return the status as it should be; None = already published. Raises TryLater."""
        ...

    def written(self, uid: str, fields: Mapping[str, Any], version: int) -> None:
        """Record that the API server has this status; ``version`` as in ``StatusWritten``."""
        ...

    async def refused(self, uid: str) -> None:
        """Check the published status after a refusal: a newer writer may have changed it.

        If so, the source adopts that status. Raises ApiError.
        """
        ...

    def next_change_in(self, uid: str) -> float | None:
        """Return the seconds until the status changes without any event; None = never."""
        ...


class WriteQueue:
    """A priority queue of uids, each once, by the instant at which it is due. No clock."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def bring_forward(self, uid: str, due: float) -> bool:
        """Make the uid due by then at the latest; return whether it is the first of all now."""
        if self._due.get(uid, due + 1) <= due:
            return False
        self._due[uid] = due
        heapq.heappush(self._heap, (due, uid))
        if len(self._heap) > 2 * len(self._due) + _FORMER_DUES:
            self._heap = [(due, uid) for uid, due in self._due.items()]
            heapq.heapify(self._heap)
        return self._heap[0][1] == uid

    def drop(self, uid: str) -> None:
        """Remove the uid."""
        self._due.pop(uid, None)

    def first(self) -> tuple[float, str] | None:
        """Return the first due instant and its uid; None if the queue is empty."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None


class _Pending(msgspec.Struct):
    """The write state of one object's status; instants are monotonic seconds.

    Attributes:
        size: bytes of the object if it is large, else 0.
        written_at: when the status was last written.
        distance: seconds between that write and the next one about runs.
        changed_at: since when its status has changed; None = the published one is true.
        urgency: 1 = it precedes others, 2 = it also skips the rate limit.
        due_after_write: when it is due again, because it changed while it was being written.
        refused_since: when it was first refused; None = the last answer was not a refusal.
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
        part: the part of the health that is unwell while statuses cannot be written.
        is_arming: whether a takeover is still listing all objects; until then nothing is written.
            With 100,000 objects, a write costs the API server as much time as a page of the list.
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

    # -- the interface for the source ------------------------------------------------------------

    def changed(
        self, uid: str, seconds: float = 0.0, *, urgent: bool = False, unlimited: bool = False
    ) -> None:
        """Queue a changed status, due in ``seconds``.

        An urgent one precedes others; an unlimited one also skips the rate limit.
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
        """Check in ``seconds`` whether the status has changed by itself."""
        pending = self._pending.get(uid)
        if pending is None or not pending.writing:
            self._bring_forward(uid, self._term.clock.monotonic() + seconds)

    def hurry(self, uid: str) -> None:
        """Reset the wait before the next write to the shortest interval."""
        self._pending_of(uid).distance = STALENESS_SECONDS

    def resize(self, uid: str, size: int) -> None:
        """Set the object's size in bytes; the status of a large one is written less often."""
        if size >= LARGE_BYTES or uid in self._pending:
            self._pending_of(uid).size = size if size >= LARGE_BYTES else 0

    def forget(self, uid: str) -> None:
        """Drop an object that is gone: no status of it must be written."""
        self._queue.drop(uid)
        self._pending.pop(uid, None)

    def rest(self, uid: str) -> float:
        """Return the seconds until a change of runs may be written.

        A status follows its runs by two seconds. A Schedule that runs every second would cause a
        write every two seconds, each as expensive for the API server as a create, with nothing new
        in it. So as long as a change is waiting whenever a write is allowed again, and the results
        stay the same, the distance doubles up to ten seconds. A write to a large object costs the
        API server a hundred times as much, so its distance depends on the size.
        """
        pending = self._pending.get(uid)
        if pending is None:
            return 0.0
        least = min(pending.size / _BYTES_PER_SECOND, _MOST_DISTANCE_SECONDS)
        after = pending.written_at + max(pending.distance, least)
        return max(0.0, after - self._term.clock.monotonic())

    # -- ordering --------------------------------------------------------------------------------

    def _pending_of(self, uid: str) -> _Pending:
        pending = self._pending.get(uid)
        if pending is None:
            pending = self._pending[uid] = _Pending()
        return pending

    def _bring_forward(self, uid: str, due: float) -> None:
        if self._queue.bring_forward(uid, due):
            self._some_due.set()

    def _wait_seconds(self) -> float | None:
        """Return seconds until the first write may start; None = not yet known, 0 uses up one."""
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
        """Write one status; return seconds until the retry, or None if there is none."""
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
        """Render and write the status; return seconds until the retry, or None = done."""
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
        """Handle a refused write; return seconds until the retry, or None = given up."""
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
        """Finish a write, and queue the status again if it has changed meanwhile."""
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
