"""The writer of all statuses: of Schedules, ScheduleRuns and ScheduleSets.

A ``StatusSource`` reports that a status has changed, and how soon it must be written. The writer
renders the status just before it writes, so the status is always the newest. It replaces the whole
status, guarded by the object's uid, and skips a status that has not changed. All writes of a term,
of every kind, share one rate limit, which rises while statuses are late; a few are in flight at a
time. Urgent statuses and those about runs take turns.

A write that failed is retried without a read, which is harmless. A write that found another object
under the name is dropped. A write that was refused comes from a leader that is behind, or does not
match the schema; it is retried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from duepoint import faults, telemetry
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import AGAIN, WorkQueue
from duepoint.faults import FaultPoint
from duepoint.kube import errors as kube_errors
from duepoint.kube import schedules

#: The longest time that a status lags behind the runs of its Schedule in a calm cluster.
STALENESS_SECONDS = 2.0
_PARALLEL_WRITES = 8
_MOST_RETRY_SECONDS = 60.0
#: Degrees of urgency: the first waits for its turn, the last skips the rate limit.
_USUAL, _URGENT, _UNLIMITED = range(3)

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

    def next_change_in(self, uid: str) -> float | None:
        """Return the seconds until the status changes without any event; None = never."""
        ...


class _Pending(msgspec.Struct):
    """The write state of one object's status; instants are monotonic seconds.

    Attributes:
        changed_at: since when its status has changed; None = the published one is true.
        written_at: when the status was last written.
    """

    changed_at: float | None = None
    urgency: int = _USUAL
    written_at: float = float("-inf")


async def write(
    term: TermContext, target: schedules.StatusTarget, fields: Mapping[str, Any]
) -> schedules.StatusWritten | schedules.ObjectReplaced | schedules.StatusRefused:
    """Replace the status of an object; log a refusal. Raises ApiError."""
    await faults.reach(FaultPoint.BEFORE_STATUS_WRITE)
    answer = await schedules.write_status(term.api, target, fields)
    await faults.reach(FaultPoint.AFTER_STATUS_WRITE)
    if isinstance(answer, schedules.StatusRefused):
        place = {"namespace": target.namespace, "name": target.name, "resource": target.plural}
        telemetry.logger.warning("status refused", error=answer.message, **place)
    return answer


class StatusWriter:
    """The service; one for each source and term.

    Args:
        part: the part of the health that is unwell while statuses cannot be written.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        source: StatusSource,
        part: str,
    ) -> None:
        self._term = term
        self._source = source
        self._part = part
        self._pending: dict[str, _Pending] = {}
        self._tasks: WorkQueue[str] = WorkQueue(
            term.clock,
            "status not written",
            lane=lambda uid: str(self._pending_of(uid).urgency),
            ends=(),
            most_seconds=_MOST_RETRY_SECONDS,
        )

    async def run(self) -> None:
        """Write until cancelled."""
        await self._tasks.run(self._handle, _PARALLEL_WRITES)

    # -- the interface for the source ------------------------------------------------------------

    def changed(
        self, uid: str, seconds: float = 0.0, *, urgent: bool = False, unlimited: bool = False
    ) -> None:
        """Queue a changed status, due in ``seconds``.

        An urgent one is due at once, and an unlimited one also skips the rate limit.
        """
        pending = self._pending.setdefault(uid, _Pending())
        pending.urgency = max(pending.urgency, _UNLIMITED * unlimited, _URGENT * urgent)
        if pending.changed_at is None:
            pending.changed_at = self._term.clock.monotonic()
        self.check_in(uid, seconds if pending.urgency == _USUAL else 0.0)

    def check_in(self, uid: str, seconds: float) -> None:
        """Check in ``seconds`` whether the status has changed by itself."""
        self._tasks.put(uid, uid, after=seconds)

    def forget(self, uid: str) -> None:
        """Drop the state of an object that is gone; its source renders no status of it."""
        self._pending.pop(uid, None)

    def rest(self, uid: str) -> float:
        """Return the seconds until a change of runs may be written: two after the last write."""
        written_at = self._pending_of(uid).written_at
        return max(0.0, written_at + STALENESS_SECONDS - self._term.clock.monotonic())

    def _pending_of(self, uid: str) -> _Pending:
        return self._pending.get(uid) or _Pending()

    # -- writing ---------------------------------------------------------------------------------

    async def _handle(self, uid: str) -> float | None:
        """Write one status in its turn; return seconds until the next look, None = no look."""
        # With 100,000 objects, a write costs the API server as much time as a page of their list.
        await self._term.services.resync.listed.wait()
        pending = self._pending_of(uid)
        if pending.urgency != _UNLIMITED:
            await self._term.take_write(pending.changed_at)
        changed_at, urgency = pending.changed_at, pending.urgency
        pending.changed_at, pending.urgency = None, _USUAL
        try:
            is_refused = await self._write(uid, pending)
        except Exception as trouble:
            pending.changed_at = changed_at
            pending.urgency = max(pending.urgency, urgency)
            self._note(trouble)
            raise
        if is_refused:
            pending.changed_at = changed_at
            return AGAIN
        if changed_at is not None:
            staleness = self._term.clock.monotonic() - changed_at
            telemetry.status_staleness_seconds.observe(staleness)
        seconds = self._source.next_change_in(uid)
        return None if seconds is None else max(seconds, self.rest(uid))

    async def _write(self, uid: str, pending: _Pending) -> bool:
        """Render and write the status; return whether the API server has refused it."""
        rendered = await self._source.render(uid)
        if rendered is None:
            return False
        self._pending.setdefault(uid, pending)
        target, fields = rendered
        answer = await write(self._term, target, fields)
        self._term.health.well(self._part)
        if isinstance(answer, schedules.StatusRefused):
            return True
        if isinstance(answer, schedules.StatusWritten):
            pending.written_at = self._term.clock.monotonic()
            self._source.written(uid, fields, answer.version)
        return False

    def _note(self, trouble: Exception) -> None:
        """Report that the API server takes no statuses; pause if it asks for that."""
        if not isinstance(trouble, kube_errors.ApiError):
            return
        if isinstance(trouble, kube_errors.Throttled):
            self._tasks.pause(trouble.retry_after_seconds or 1.0)
        if self._term.health.unwell(self._part, str(trouble)):
            telemetry.logger.warning("statuses cannot be written", error=str(trouble))
