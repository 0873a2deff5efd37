"""Ends of Jobs, reported to the queue, so that a slot that waits for them has its turn at once.

The watch of Jobs says which Jobs have ended or gone; the queue learns it by schedule. A schedule
that allows concurrent runs needs none of it, unless a ScheduleRun waits all the same. An edit that
lets more runs start calls up every slot that waits. Correctness does not depend on this: a worker
looks at the Jobs itself before it refuses a slot, and a waiting slot looks again by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from duepoint import errors
from duepoint.controller.term import TermContext
from duepoint.controller.workqueue import WorkQueue
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import overlaps
from duepoint.schedules.definition import Definition

_WORKERS = 4

#: The definition in the queue of a Schedule (uid); raises QueueUnavailable.
Definitions = Callable[[str], Awaitable[Definition | None]]


class Completions:
    """The service; one for each term of a leader.

    Args:
        is_waited_for: whether a ScheduleRun waits for runs of a schedule that allows everything.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        definitions: Definitions,
        is_waited_for: Callable[[Definition], bool],
    ) -> None:
        self._term = term
        self._definitions = definitions
        self._ended: dict[str, set[str]] = {}
        self._wider: set[str] = set()
        self._is_waited_for = is_waited_for
        self._work: WorkQueue[str] = WorkQueue(
            term.clock, "job ends not reported", ends=(queue_errors.Fenced,)
        )

    def job_ended(self, schedule_uid: str, job_name: str) -> None:
        """The Job has ended or is gone; an empty name: some Job of this Schedule."""
        self._ended.setdefault(schedule_uid, set()).add(job_name)
        self._work.put(schedule_uid, schedule_uid)

    def widen(self, schedule_uid: str) -> None:
        """An edit lets more runs of this Schedule in."""
        self._wider.add(schedule_uid)
        self._work.put(schedule_uid, schedule_uid)

    async def run(self) -> None:
        """Report until cancelled."""
        await self._work.run(self._report, _WORKERS)

    async def _report(self, schedule_uid: str) -> None:
        ended = self._ended.pop(schedule_uid, set())
        is_wider = schedule_uid in self._wider
        self._wider.discard(schedule_uid)
        try:
            known = await self._definitions(schedule_uid)
            if known is None:
                return
            is_limited = known.rule.policy.concurrency != overlaps.ALLOW
            if is_wider or is_limited or self._is_waited_for(known):
                await self._term.queue.concurrency.finish(
                    known, ended, self._term.epoch, every=is_wider
                )
        except (errors.TryLater, errors.WorldChanged):
            self._ended.setdefault(schedule_uid, set()).update(ended)
            self._wider.update([schedule_uid] if is_wider else ())
            raise
