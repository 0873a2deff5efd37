"""The states of all ScheduleRuns, and what other services ask of them.

Finds a state by uid, by the name of its Schedule and by the name of a Job. A Job is *guarded* while
no published status shows how its run ended: until then it must not leave the history. The first
inventory of a term makes the states complete; before it the answers are "unknown".
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterator

from duepoint.controller.scheduleruns import runstate
from duepoint.controller.scheduleruns.runstate import ScheduleRunState
from duepoint.controller.term import TermContext
from duepoint.schedules.definition import Definition

#: Uids remembered as deleted: a page of a list may be older than the deletion.
TOMBSTONES = 10_000
#: The end of the name of a ScheduleRun's Job: slot, and ten hexadecimal digits.
_OF_A_RUN = re.compile(r"-\d+-[0-9a-f]{10}$")


def is_job_of_a_run(job_name: str) -> bool:
    """Whether the name is that of a Job of some ScheduleRun."""
    return _OF_A_RUN.search(job_name) is not None


class ScheduleRunStates:
    """States by uid; one for each term.

    Attributes:
        is_complete: whether an inventory of this term has ended.
    """

    def __init__(self, term: TermContext) -> None:
        self._term = term
        self._states: dict[str, ScheduleRunState] = {}
        self._by_schedule: dict[tuple[str, str], set[str]] = {}
        self._by_job: dict[tuple[str, str], tuple[str, int]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self.is_complete = False

    def __contains__(self, uid: str) -> bool:
        return uid in self._states

    def __iter__(self) -> Iterator[ScheduleRunState]:
        """All states; the set may change meanwhile."""
        return iter(list(self._states.values()))

    def get(self, uid: str) -> ScheduleRunState | None:
        """The state of a ScheduleRun; None = it is not known, or deleted."""
        return self._states.get(uid)

    def uids(self) -> frozenset[str]:
        """All uids."""
        return frozenset(self._states)

    def of_schedule(self, namespace: str, name: str) -> list[ScheduleRunState]:
        """The ScheduleRuns that name this Schedule."""
        return [self._states[uid] for uid in self._by_schedule.get((namespace, name), ())]

    def of_job(self, namespace: str, job_name: str) -> tuple[str, int]:
        """The uid and the slot that a guarded Job belongs to; an empty uid = none."""
        return self._by_job.get((namespace, job_name), ("", 0))

    # -- changes ---------------------------------------------------------------------------------

    def add(self, run: ScheduleRunState) -> None:
        """A ScheduleRun was observed for the first time."""
        self._states[run.seen.uid] = run
        self._by_schedule.setdefault(run.schedule_key, set()).add(run.seen.uid)
        self.guard(run)

    def remove(self, uid: str) -> ScheduleRunState | None:
        """The ScheduleRun was deleted; its state, where it was known."""
        self._deleted[uid] = None
        if len(self._deleted) > TOMBSTONES:
            self._deleted.popitem(last=False)
        run = self._states.pop(uid, None)
        if run is not None:
            named = self._by_schedule.get(run.schedule_key, set())
            named.discard(uid)
            if not named:
                self._by_schedule.pop(run.schedule_key, None)
            self.release(run, ())
        return run

    def was_deleted(self, uid: str) -> bool:
        """Whether the ScheduleRun was deleted a while ago."""
        return uid in self._deleted

    def guard(self, run: ScheduleRunState) -> None:
        """The Jobs of all open slots are guarded."""
        for slot_us in run.course.open.keys() - run.guarded:
            self._by_job[run.seen.namespace, run.job_name(slot_us)] = (run.seen.uid, slot_us)
            run.guarded.add(slot_us)

    def release(self, run: ScheduleRunState, kept: Collection[int]) -> None:
        """The published status shows how the runs of all slots but these have ended."""
        released = run.guarded.difference(kept)
        for slot_us in released:
            self._by_job.pop((run.seen.namespace, run.job_name(slot_us)), None)
        run.guarded -= released
        if released and run.schedule_uid:
            self._term.services.jobs.history.look(run.schedule_uid)

    # -- queries ---------------------------------------------------------------------------------

    def has_waiting(self, known: Definition) -> bool:
        """Whether a ScheduleRun may wait for runs of this Schedule, independent of its policy."""
        return any(map(runstate.may_wait, self.of_schedule(known.namespace, known.name)))

    def has_ended(self, run_uid: str, slot_us: int) -> bool | None:
        """Whether a slot of a ScheduleRun has ended; None = that is not known yet."""
        if not self.is_complete:
            return None
        run = self._states.get(run_uid)
        if run is None or run.wanted is None or run.ended_us is not None:
            return True  # deleted or ended: what the queue holds of it is left over
        return runstate.has_ended(run, slot_us)

    def keeps(self, namespace: str, job_name: str) -> bool:
        """Whether a finished Job must stay: no published status shows how its run ended."""
        if not self.is_complete:
            return is_job_of_a_run(job_name)
        return (namespace, job_name) in self._by_job
