"""The only writer of statuses, of Schedules and of ScheduleRuns.

An owner of statuses (``StatusSource``) says that a status has changed, how soon it is to be written
and which acknowledgements depend on it. The writer asks for the status when its turn has come, so
it is always written in its newest state, and replaces it as a whole, guarded by the object's uid. A
status that would be the same is not written. All writes of a term, of whichever kind, keep to one
rate, and those of a kind to fewer at a time while the API server is slow; large objects take turns
of their own, with rests.

What follows an answer depends on the answer. A write that failed is repeated without a read, which
is harmless. One that found another object under the name is dropped. One that was refused comes
from a leader that is behind, or the schema does not know it: its source takes over what the API
server has, what has been applied since the last write is applied again, and it is written again.
An acknowledgement is settled when a status that covers it was written, or needs no write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from duepoint import clock as clocks
from duepoint import errors, faults, services, telemetry
from duepoint.controller.allowance import Allowance
from duepoint.controller.observed import LARGE_BYTES
from duepoint.controller.status import writequeue
from duepoint.controller.status.writequeue import (
    FewPerPeriod,
    LargeWriteQueue,
    Parallel,
    WriteInterval,
    WriteQueue,
)
from duepoint.controller.term import Acknowledgement, TermContext, settle_all
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules

#: When the rate is not enough, an urgent status precedes changes of runs younger than this.
_PRECEDENCE_SECONDS = 30.0
#: Ten thousand Schedules are applied within this, or nearly; urgent statuses may wait as long.
_APPLYING_SECONDS = 30.0
#: The wait between two looks whether writes may begin while all objects are listed.
_ARMING_SECONDS = 0.25
#: A burst of changes goes on for as long as further ones come within this.
_STILL_SECONDS = 1.0
_PARALLEL_WRITES = 8
#: What is refused for so long, by an older schema for example, is given up: its outcomes are kept
#: until then, and hold up those of others once they are very many.
_REFUSED_SECONDS = 3600.0
#: So many statuses that runs have changed are written at the beginning of a second, which belongs
#: to slots. One that has waited for so long, longer in a burst, takes all of each second, and so
#: does one of a burst of so many.
_OUTSIDE_LULL_WRITES = 4
_SOON_SECONDS = 5.0
_LULLS_SECONDS = 50.0
_MOST_IN_LULLS = 2_000

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

        Where it is, the source adopts the status that is there and calls ``apply_again``. Raises
        ApiError.
        """
        ...

    def next_change_in(self, uid: str) -> float | None:
        """Seconds until the status changes without any event; None = never."""
        ...


class _Pending(msgspec.Struct):
    """One object whose status was, or is to be, written.

    Attributes:
        changed_at: since when its status has changed; None = the published one is true.
        large_bytes: size of the object where it is large, else 0.
        due_after_write: when it is due again by what changed while it was being written.
        retry_at: when it is tried again; None = the last write has not failed.
        refused_since: when it was refused first; None = the last answer was another one.
        applied: applies once more what no written status shows yet, one by one.
    """

    interval: WriteInterval = WriteInterval()
    namespace: str = ""
    large_bytes: int = 0
    changed_at: float | None = None
    writing: bool = False
    due_after_write: float | None = None
    acks: tuple[Acknowledgement, ...] = ()
    waits: Iterator[float] | None = None
    retry_at: float | None = None
    refused_since: float | None = None
    applied: list[Callable[[], object]] = msgspec.field(default_factory=list)


class StatusWriter:
    """The service; one for each source and term.

    Args:
        part: of the health: what is unwell while statuses cannot be written.
        is_arming: whether a takeover still lists all objects; nothing is written until it has.
            Beside 100,000 objects a write costs the API server as much time as a page of the list.
        holds_bursts: whether writes wait while more and more statuses change.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        source: StatusSource,
        part: str,
        is_arming: Callable[[], bool] = lambda: False,
        holds_bursts: bool = True,
    ) -> None:
        self._term = term
        self._source = source
        self._part = part
        self._is_arming = is_arming
        self._holds_bursts = holds_bursts
        self._allowance = term.allowance
        self._parallel = Parallel(_PARALLEL_WRITES)
        self._outside_lull = FewPerPeriod(_OUTSIDE_LULL_WRITES)
        self._queue = WriteQueue()
        self._large = LargeWriteQueue()
        self._pending: dict[str, _Pending] = {}
        #: Uids with a change that waits, and the urgent ones among them; large objects left out.
        self._changed: set[str] = set()
        self._urgent: set[str] = set()
        self._unlimited: set[str] = set()
        #: When a status changed last that had been true.
        self._changed_at = -_STILL_SECONDS
        self._allowed_at = 0.0
        self._pause_until = 0.0
        self._some_due = asyncio.Event()
        self._some_large_due = asyncio.Event()

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_large())
            while True:
                self._some_due.clear()
                wait = self._wait_seconds()
                if wait is None or wait > 0:
                    await clocks.wait_for(self._some_due, wait, self._term.clock)
                elif (uid := self._take()) is not None:
                    self._parallel.begin()
                    group.create_task(self._write_ordinary(uid))

    # -- what the source says --------------------------------------------------------------------

    def changed(
        self, uid: str, seconds: float = 0.0, *, urgent: bool = False, unlimited: bool = False
    ) -> None:
        """The status has changed and is due in so many seconds.

        An urgent one is due at once and precedes others; an unlimited one does not even wait for
        the rate.
        """
        pending, now = self._pending_of(uid), self._term.clock.monotonic()
        if urgent or unlimited:
            seconds = -_PRECEDENCE_SECONDS
            if not pending.large_bytes:
                (self._unlimited if unlimited else self._urgent).add(uid)
        else:
            seconds = clocks.sooner_for_lull(self._term.clock.now_us(), seconds)
        if pending.changed_at is None:
            pending.changed_at = now
            if not pending.large_bytes:  # large objects take no part in bursts
                self._changed_at = now
                self._changed.add(uid)
        due = now + seconds
        if pending.writing:
            pending.due_after_write = min(due, pending.due_after_write or due)
        else:
            self._bring_forward(uid, pending, due)

    def look(self, uid: str, seconds: float) -> None:
        """The status may have changed by then, though no change is known."""
        pending = self._pending_of(uid)
        if not pending.writing:
            self._bring_forward(uid, pending, self._term.clock.monotonic() + seconds)

    def acknowledge(self, uid: str, *acks: Acknowledgement) -> None:
        """The next write of this status settles these, which expect it."""
        if acks:
            pending = self._pending_of(uid)
            pending.acks = (*pending.acks, *acks)

    def remember(self, uid: str, again: Callable[[], object]) -> None:
        """Something was applied to the state; ``again`` applies it to one that was adopted."""
        self._pending_of(uid).applied.append(again)

    def apply_again(self, uid: str) -> None:
        """The source has adopted another status: what no written one shows is applied to that."""
        if (pending := self._pending.get(uid)) is not None:
            for again in pending.applied:
                again()

    def hurry(self, uid: str) -> None:
        """The next write waits no longer than the shortest interval."""
        pending = self._pending_of(uid)
        pending.interval = pending.interval.hurried()

    def resize(self, uid: str, namespace: str, size: int) -> None:
        """The object has so many bytes; an edit may make it large, or small again."""
        large_bytes = size if size >= LARGE_BYTES else 0
        if not large_bytes and uid not in self._pending:
            return
        pending = self._pending_of(uid)
        if bool(large_bytes) == bool(pending.large_bytes):
            pending.large_bytes = large_bytes
            return
        due = self._drop_due(uid, pending)
        pending.namespace, pending.large_bytes = namespace, large_bytes
        if due is not None:
            self._bring_forward(uid, pending, due)

    def forget(self, uid: str) -> None:
        """The object is gone; no status of it has to be written."""
        if (pending := self._pending.pop(uid, None)) is not None:
            self._drop_due(uid, pending)
            acks, pending.acks = pending.acks, ()
            settle_all(acks)

    # -- what the source asks --------------------------------------------------------------------

    def rest(self, uid: str) -> float:
        """Seconds until a change of runs may be written."""
        pending = self._pending.get(uid)
        if pending is None:
            return 0.0
        least = writequeue.least_distance(pending.large_bytes)
        return pending.interval.rest(self._term.clock.monotonic(), least=least)

    def start_rest(self, uid: str, seconds: float) -> float:
        """The same for the start of a run: so many seconds, and more for a large object."""
        pending = self._pending.get(uid)
        is_large = pending is not None and pending.large_bytes
        return max(seconds, self.rest(uid)) if is_large else seconds

    def is_changed(self, uid: str) -> bool:
        """Whether a change of this status waits."""
        pending = self._pending.get(uid)
        return pending is not None and pending.changed_at is not None

    def is_burst(self) -> bool:
        """Whether more statuses have changed than a few seconds' worth."""
        return self._allowance.is_burst(len(self._changed))

    # -- whose turn it is ------------------------------------------------------------------------

    def _pending_of(self, uid: str) -> _Pending:
        pending = self._pending.get(uid)
        if pending is None:
            pending = self._pending[uid] = _Pending()
        return pending

    def _bring_forward(self, uid: str, pending: _Pending, due: float) -> None:
        if pending.large_bytes:
            self._large.bring_forward(pending.namespace, uid, due)
            self._some_large_due.set()
        elif self._queue.bring_forward(uid, due):
            self._allowed_at = 0.0  # another status is first, with another wait
            self._some_due.set()

    def _drop_due(self, uid: str, pending: _Pending) -> float | None:
        """The object is in no queue; when it was due."""
        self._unmark(uid)
        if pending.large_bytes:
            return self._large.drop(pending.namespace, uid)
        return self._queue.drop(uid)

    def _unmark(self, uid: str) -> None:
        for marked in (self._changed, self._urgent, self._unlimited):
            marked.discard(uid)

    def _wait_seconds(self) -> float | None:
        due = self._queue.next_due()
        if due is None or not self._parallel.has_room():
            return None
        return max(due, self._pause_until, self._allowed_at) - self._term.clock.monotonic()

    def _take(self) -> str | None:
        now = self._term.clock.monotonic()
        due = self._queue.next_due()
        if due is None or due > now:
            return None
        if (seconds := self._allowed_in(now)) > 0:
            self._allowed_at = now + seconds
            return None
        return self._queue.take(now)

    def _allowed_in(self, now: float) -> float:
        """Seconds until the next status may be written; 0.0 = now."""
        if self._is_arming():
            return _ARMING_SECONDS
        first = self._queue.first() or ""
        if first in self._unlimited:
            return 0.0
        pending = self._pending.get(first)
        changed_at = None if pending is None else pending.changed_at
        # Urgent statuses wait for one another only, however many changes of runs there are.
        is_urgent = first in self._urgent
        waited = 0.0 if changed_at is None else now - changed_at
        left = 0.0
        if not self._urgent and self._keeps_to_lulls(waited):
            left = clocks.seconds_to_lull(self._term.clock.now_us())
            if left and self._outside_lull.is_over(now, left):
                return left
        wait = self._allowance.take(
            now,
            waiting=len(self._urgent if is_urgent else self._changed),
            waited_seconds=waited,
            is_rising=self._holds_bursts and now - self._changed_at < _STILL_SECONDS,
            patience_seconds=_APPLYING_SECONDS if is_urgent else Allowance.PATIENCE_SECONDS,
        )
        if left and not wait:
            self._outside_lull.begin()
        return wait

    def _keeps_to_lulls(self, waited_seconds: float) -> bool:
        """Whether the first status, which has waited so long, leaves others the second's begin."""
        if self.is_burst():
            return waited_seconds < _LULLS_SECONDS and len(self._changed) <= _MOST_IN_LULLS
        return waited_seconds < _SOON_SECONDS

    # -- writing ---------------------------------------------------------------------------------

    async def _write_ordinary(self, uid: str) -> None:
        try:
            await self._write_one(uid)
        finally:
            self._parallel.end()
            self._some_due.set()
        await self._precede_again(uid)

    async def _precede_again(self, uid: str) -> None:
        """An urgent status whose write failed goes before the others once its retry is due."""
        pending = self._pending.get(uid)
        if pending is None or pending.retry_at is None or not self._is_urgent(uid):
            return
        await self._term.clock.sleep(pending.retry_at - self._term.clock.monotonic())
        if self._is_current(uid, pending) and self._is_urgent(uid) and not pending.writing:
            self._bring_forward(uid, pending, pending.retry_at - _PRECEDENCE_SECONDS)

    def _is_urgent(self, uid: str) -> bool:
        return uid in self._urgent or uid in self._unlimited

    async def _write_large(self) -> None:
        """The statuses of large objects, one at a time."""
        while True:
            self._some_large_due.clear()
            now, due = self._term.clock.monotonic(), self._large.next_due()
            wait = None if due is None else max(due, self._pause_until) - now
            if wait is None or wait > 0:
                await clocks.wait_for(self._some_large_due, wait, self._term.clock)
            elif self._is_arming():
                await self._term.clock.sleep(_ARMING_SECONDS)
            elif left := clocks.seconds_to_lull(self._term.clock.now_us(), takes_long=True):
                await self._term.clock.sleep(left)
            elif (uid := self._large.take(now)) is not None:
                pending = self._pending_of(uid)
                namespace, size = pending.namespace, pending.large_bytes
                await self._write_one(uid)
                self._large.rest(namespace, size, now, self._term.clock.monotonic())

    async def _write_one(self, uid: str) -> None:
        pending = self._pending.get(uid)
        if pending is None:
            return
        changed_at, acks = pending.changed_at, pending.acks
        marked = [marks for marks in (self._urgent, self._unlimited) if uid in marks]
        pending.writing, pending.changed_at, pending.acks = True, None, ()
        pending.retry_at, shown = None, len(pending.applied)
        self._unmark(uid)
        try:
            is_done = await self._write(uid, pending)
        except Exception as bug:  # noqa: BLE001 - a bug in one status must not stop the others
            telemetry.logger.error("status not written", error=repr(bug), uid=uid, exc_info=bug)
            is_done = False
            self._retry(uid, pending, None)
        finally:
            pending.writing = False
        if is_done or not self._is_current(uid, pending):
            del pending.applied[:shown]
            self._finish(uid, pending, changed_at, acks)
            return
        pending.changed_at = changed_at
        if changed_at is not None and not pending.large_bytes:
            for marks in (self._changed, *marked):
                marks.add(uid)
        pending.acks = acks + pending.acks

    async def _write(self, uid: str, pending: _Pending) -> bool:
        """True where nothing is left to write of what was known at the beginning."""
        try:
            rendered = await self._source.render(uid)
            if rendered is None:
                return True
            target, fields = rendered
            began = self._term.clock.monotonic()
            try:
                await faults.reach(FaultPoint.BEFORE_STATUS_WRITE)
                answer = await schedules.write_status(self._term.api, target, fields)
                await faults.reach(FaultPoint.AFTER_STATUS_WRITE)
            finally:
                if not pending.large_bytes:
                    self._parallel.record_answer(began, self._term.clock.monotonic())
            if isinstance(answer, schedules.StatusRefused):
                return await self._refused(uid, pending, target, answer.message)
        except errors.TryLater as trouble:
            self._fail(uid, pending, trouble, trouble.retry_after_seconds)
            return False
        except kube_errors.ApiError as trouble:
            self._fail(uid, pending, trouble, None)
            return False
        self._term.health.well(self._part)
        pending.waits = pending.refused_since = None
        if isinstance(answer, schedules.StatusWritten):
            pending.interval = pending.interval.written(self._term.clock.monotonic())
            self._source.written(uid, fields, answer.version)
        return True

    async def _refused(
        self, uid: str, pending: _Pending, target: schedules.StatusTarget, message: str
    ) -> bool:
        """True where it is given up."""
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
        if now - pending.refused_since >= _REFUSED_SECONDS:
            return True
        self._retry(uid, pending, None)
        return False

    def _fail(
        self, uid: str, pending: _Pending, trouble: Exception, after_seconds: float | None
    ) -> None:
        if isinstance(trouble, kube_errors.ApiError):
            if isinstance(trouble, kube_errors.Throttled):
                pause_until = self._term.clock.monotonic() + (after_seconds or 1.0)
                self._pause_until = max(self._pause_until, pause_until)
            if self._term.health.unwell(self._part, str(trouble)):
                telemetry.logger.warning("statuses cannot be written", error=str(trouble))
        self._retry(uid, pending, after_seconds)

    def _retry(self, uid: str, pending: _Pending, after_seconds: float | None) -> None:
        if pending.waits is None:
            pending.waits = services.backoff(first_seconds=0.5, most_seconds=30.0)
        wait = max(next(pending.waits), after_seconds or 0.0)
        if not self._is_current(uid, pending):
            return
        due = pending.retry_at = self._term.clock.monotonic() + wait
        if pending.large_bytes:
            self._large.put_off(pending.namespace, uid, due)
        else:
            self._queue.put_off(uid, due)
        self._some_due.set()
        self._some_large_due.set()

    def _finish(
        self,
        uid: str,
        pending: _Pending,
        changed_at: float | None,
        acks: tuple[Acknowledgement, ...],
    ) -> None:
        """The acknowledgements are settled, and what changed during the write is due again."""
        now = self._term.clock.monotonic()
        settle_all(acks)
        if changed_at is not None:
            telemetry.status_staleness_seconds.observe(now - changed_at)
        due, pending.due_after_write = pending.due_after_write, None
        if not self._is_current(uid, pending):
            settle_all(pending.acks)
            return
        if (seconds := self._source.next_change_in(uid)) is not None:
            self.look(uid, seconds)
        if due is not None:
            self.changed(uid, due - now)

    def _is_current(self, uid: str, pending: _Pending) -> bool:
        return self._pending.get(uid) is pending
