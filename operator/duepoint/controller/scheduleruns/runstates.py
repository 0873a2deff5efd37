"""The states of all ScheduleRuns, what other services ask of them, and their statuses.

A Job is *guarded* while no published status shows how its run ended: until then it must not leave
the history. The first inventory of a term makes the states complete; before it the answers are
"unknown". A look at a ScheduleRun renders its status; the newest one is written, at most once a
second while the ScheduleRun goes on and at once when something else changes. The first slot waits
for the first status, so that one does not wait for the rate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import runstate, runstatus
from duepoint.controller.scheduleruns.runstate import ScheduleRunState
from duepoint.controller.status.records import is_job_of_a_run, run_key
from duepoint.controller.status.writer import Rendered, StatusWriter
from duepoint.controller.term import TermContext
from duepoint.kube import events, schedules
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition

#: Uids remembered as deleted: a page of a list may be older than the deletion.
TOMBSTONES = 10_000


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
            self._term.services.jobs.sync.look(run.schedule_uid)

    # -- queries ---------------------------------------------------------------------------------

    def has_waiting(self, known: Definition) -> bool:
        """Whether a ScheduleRun may wait for runs of this Schedule, independent of its policy."""
        return any(map(runstate.may_wait, self.of_schedule(known.namespace, known.name)))

    def keeps(self, namespace: str, job_name: str) -> bool:
        """Whether a finished Job must stay: no published status shows how its run ended."""
        if not self.is_complete:
            return is_job_of_a_run(job_name)
        return (namespace, job_name) in self._by_job


#: Between two writes of the status of a ScheduleRun that goes on.
_INTERVAL_SECONDS = 1.0


class RunPublisher:
    """Publishes for the leader of one term; the ``StatusSource`` of a writer.

    Args:
        look: called with the uid of a ScheduleRun that is to be looked at.
        outdated: called when a newer writer has been there.

    Attributes:
        writer: its writer; to be run.
    """

    def __init__(
        self,
        term: TermContext,
        *,
        states: ScheduleRunStates,
        part: str,
        look: Callable[[str], None],
        outdated: Callable[[], None],
    ) -> None:
        self._states = states
        self._term, self._api, self._clock = term, term.api, term.clock
        self._look = look
        self._outdated = outdated
        self.writer = StatusWriter(term, source=self, part=part)

    def publish(self, run: ScheduleRunState, verdict: runstatus.RunVerdict) -> None:
        """The status that follows from the state is to be published."""
        uid = run.seen.uid
        run.desired = runstatus.rendered(
            verdict,
            run.course,
            planned=run.planned,
            schedule_uid=run.begins_with,
            generation=run.seen.generation,
            now_us=self._clock.now_us(),
            previous=run.published,
        )
        run.shows = 0 if run.early else len(run.unshown)
        wait, is_beginning = 0.0, bool(run.begins_with) and not run.has_begun
        goes_on = verdict.conditions[0].reason in (Reason.RUNNING, Reason.RETRYING)
        if goes_on and run.published_at is not None:
            wait = max(0.0, run.published_at + _INTERVAL_SECONDS - self._clock.monotonic())
        self.writer.changed(uid, wait, unlimited=is_beginning)

    async def render(self, uid: str) -> Rendered | None:
        run = self._states.get(uid)
        if run is None or run.desired is None:
            return None
        run.published_at, run.writes = self._clock.monotonic(), run.shows
        if run.desired == run.published:
            self._record(run)
            return None
        named = schedules.StatusTarget(
            namespace=run.seen.namespace, name=run.seen.name, uid=uid, plural=schedules.RUN_PLURAL
        )
        return named, run.desired

    def written(
        self,
        uid: str,
        fields: Mapping[str, Any],
        version: int,  # noqa: ARG002 - of ``StatusSource``
    ) -> None:
        if (run := self._states.get(uid)) is not None:
            had_begun = run.has_begun
            run.is_outdated = False
            run.published = dict(fields)
            self._record(run)
            if run.has_begun and not had_begun:
                self._look(uid)

    def _record(self, run: ScheduleRunState) -> None:
        # No status shows that a Job is being replaced.
        shown, left = run.unshown[: run.writes], run.unshown[run.writes :]
        announced = [one for one in shown if one.state is RunState.REPLACING]
        kept = [one for one in announced if one.slot_us in run.course.open]
        more = run.shows - run.writes
        self.show(run, kept + left)
        run.shows = len(kept) + more
        status = runstatus.read(run.published)
        self._states.release(run, status.open_us | run.course.open.keys())
        if status.ended_us is not None:
            run.ended_us = status.ended_us or self._clock.now_us()
            self._look(run.seen.uid)

    def show(self, run: ScheduleRunState, left: Collection[RunEvent]) -> None:
        """Of its outcomes only these are left to be published."""
        gone = {run_key(event) for event in run.unshown} - {run_key(event) for event in left}
        run.unshown, run.shows, run.writes = list(left), 0, 0
        for key in gone:
            self._term.services.records.shown_of_run(key)

    async def refused(self, uid: str) -> None:
        run = self._states.get(uid)
        if run is None:
            return
        item = await schedules.read_run(self._api, run.seen.namespace, run.seen.name)
        if item is None or item.metadata.uid != uid:
            return
        if not runstate.is_published(run, bytes(item.status)):
            run.is_outdated = True
            self._outdated()

    def next_change_in(self, uid: str) -> float | None:  # noqa: ARG002 - by events only
        return None


def kept_in_git(seen: Observed) -> events.Event:
    """A warning: a ScheduleRun with a time to live that is kept in Git runs again and again."""
    note = (
        f"it carries {seen.kept_in_git} and spec.ttlSecondsAfterFinished: once deleted, it is made "
        "again from Git and runs again, for ever. Make it with kubectl create or duepoint trigger, "
        "or as a sync hook, and do not keep it in Git"
    )
    return events.Event(
        regarding=events.ObjectReference(
            namespace=seen.namespace, name=seen.name, uid=seen.uid, kind=schedules.RUN_KIND
        ),
        reason="TrackedInGit",
        action="Reconcile",
        note=note,
        warning=True,
    )
