"""The statuses of ScheduleRuns, published through ``status.writer``.

A look at a ScheduleRun renders its status; the newest one is written, at most once a second while
the ScheduleRun goes on and at once when something else changes. The first slot waits for the first
status, so that one does not wait for the rate. Once a status is published, Jobs whose end it shows
are released, and a ScheduleRun that it shows as begun or ended is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import runstate, runstatus
from duepoint.controller.scheduleruns.runstate import ScheduleRunState
from duepoint.controller.scheduleruns.runstates import ScheduleRunStates
from duepoint.controller.status.writer import Rendered, StatusWriter
from duepoint.controller.term import TermContext
from duepoint.kube import events, schedules
from duepoint.schedules.conditions import Reason

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
        self._api, self._clock = term.api, term.clock
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
        self.writer.acknowledge(uid, *run.take_acks())
        wait, is_beginning = 0.0, bool(run.begins_with) and not run.has_begun
        goes_on = verdict.conditions[0].reason in (Reason.RUNNING, Reason.RETRYING)
        if goes_on and run.published_at is not None:
            wait = max(0.0, run.published_at + _INTERVAL_SECONDS - self._clock.monotonic())
        self.writer.changed(uid, wait, unlimited=is_beginning)

    async def render(self, uid: str) -> Rendered | None:
        run = self._states.get(uid)
        if run is None or run.desired is None:
            return None
        run.published_at = self._clock.monotonic()
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
        status = runstatus.read(run.published)
        self._states.release(run, status.open_us | run.course.open.keys())
        if status.ended_us is not None:
            run.ended_us = status.ended_us or self._clock.now_us()
            self._look(run.seen.uid)

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
