"""Members of deleted sets, removed in steps that nothing else has to wait for.

From its first step on no member of the set fires or changes. A step removes some hundred members of
one shard, which takes a server a few milliseconds, and between two steps it serves everybody else.
A rest follows each step, longer than an idle server takes for it, and no longer than a moment: on a
busy machine a step takes long because others work, and a rest that grew with it would make a large
set last for hours. Sets take turns. A step may be repeated; a new leader goes on where the former
one stopped, because what is left is what the queue still holds. The object goes last: its finalizer
is released once nothing is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from duepoint import faults
from duepoint.controller.schedulesets.setstatus import DeletionProgress, FollowedSet
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.faults import FaultPoint
from duepoint.schedules.sets.setrecord import SetRecord

#: Members that one step removes: 2,000 at a time made firings beside them three times as late.
STEP_MEMBERS = 300
#: A rest is twice as long as the step before it, within these bounds. With three times that long
#: ten million took 531 s instead of 411, and firings beside it were as late (p99 58, 59 ms).
_REST_FACTOR = 2.0
_LEAST_REST_SECONDS, _MOST_REST_SECONDS = 0.004, 0.01
_MOVING_SECONDS = 0.5
#: Sets whose members are removed side by side: the steps of more would crowd out firings.
_WORKERS = 1

#: What ends a term.
_ENDS = (queue_errors.Fenced,)

#: Called after a step with the set's uid and what was removed so far and is left.
Report = Callable[[str, DeletionProgress], None]


class SetDeletions:
    """The service; one for each term of a leader.

    Args:
        report: takes the progress of each step.
        finished: called once nothing is left of a set; raises what ``kube`` raises.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        report: Report,
        finished: Callable[[SetRecord], Awaitable[float | None]],
    ) -> None:
        self._term = term
        self._report = report
        self._finished = finished
        self._tasks: WorkQueue[SetRecord] = WorkQueue(term.clock, "members not removed", ends=_ENDS)
        self._progress: dict[str, DeletionProgress] = {}
        self._is_empty: set[str] = set()

    async def run(self) -> None:
        """Remove until cancelled; raises queue_errors.Fenced where a newer leader has been here."""
        await self._tasks.run(self._step, _WORKERS)

    def is_deleting(self, uid: str) -> bool:
        """Whether members of this set are being removed."""
        return uid in self._progress

    def begin(self, record: SetRecord, *, began_us: int, state: FollowedSet | None = None) -> None:
        """Remove the members of this set, which is stored as deleting."""
        if record.uid in self._progress:
            return
        before = None if state is None else state.deletion
        progress = before or DeletionProgress(began_us=began_us)
        self._progress[record.uid] = progress
        self._report(record.uid, progress)
        self._tasks.put(record.uid, record)

    async def _step(self, record: SetRecord) -> float | None:
        uid = record.uid
        if uid not in self._is_empty:
            began = self._term.clock.monotonic()
            try:
                await faults.reach(FaultPoint.BEFORE_SET_REMOVAL_STEP)
                removal = await self._term.queue.set_removals.step(
                    record, self._term.epoch, most=STEP_MEMBERS
                )
                await faults.reach(FaultPoint.AFTER_SET_REMOVAL_STEP)
            except queue_errors.LayoutChanged:  # members are on their way to other shards
                await self._term.queue.layouts.read()
                return _MOVING_SECONDS
            took = self._term.clock.monotonic() - began
            former = self._progress[uid]
            progress = replace(former, removed=former.removed + removal.removed, left=removal.left)
            self._progress[uid] = progress
            self._report(uid, progress)
            if not removal.is_done:
                return min(max(took * _REST_FACTOR, _LEAST_REST_SECONDS), _MOST_REST_SECONDS)
            self._is_empty.add(uid)
        again = await self._finished(record)
        if again is None:
            self._progress.pop(uid, None)
            self._is_empty.discard(uid)
        return again
