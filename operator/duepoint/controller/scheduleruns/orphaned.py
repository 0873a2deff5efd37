"""A ScheduleRun whose Schedule was deleted: nothing more starts, and what had started ends.

A ScheduleRun belongs to the Schedule that it began with, by its uid, and ends with it. Before a
deleted Schedule leaves the queue its occurrences are withdrawn, and the queue says of each whether
a worker held it. So it is clear where each open slot is: a slot that no worker held never runs; one
that a worker held is attempted once more at most, and its outcome comes; one with a Job lasts until
that Job ends, or until Kubernetes deletes it with its Schedule; one that was not in the queue has
ended or was never there. Only a worker that crashes reports nothing: such a slot counts as failed
once the longest attempt is over. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from duepoint.controller.scheduleruns import runstate, runstatus
from duepoint.controller.scheduleruns.runstate import Orphaned, ScheduleRunState
from duepoint.kube import jobs
from duepoint.runs import progress as courses
from duepoint.runs.progress import RunSlot, Standing
from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill

#: The time between two looks in the first minute, and after it.
_LOOK_SECONDS = 2.0
_LATER_SECONDS = 15.0
#: The longest attempt takes 300 s; it may have waited in its worker, and its outcome travels.
PATIENCE_SECONDS = 360.0
#: The watch may show how a Job ended a moment after a list shows that it is gone.
_MISSING_SECONDS = 3.0

_WITH_ITS_JOB = "its Job was deleted with its Schedule before it had ended"
_NOT_AGAIN = "it is not tried again, because its Schedule was deleted"
_UNREPORTED = "its Schedule was deleted, and no worker reported how it ended"


def account(run: ScheduleRunState, found: Collection[jobs.Job], *, now: float, now_us: int) -> None:
    """Every open slot is where it is known to be; those that never run are not open any more.

    Args:
        found: the Jobs that exist.
        now: monotonic.
    """
    by_name = {job.metadata.name: job for job in found}
    _open_further(run, found)
    runstate.apply_early(run)
    for slot_us in list(run.course.open):
        job = by_name.get(run.job_name(slot_us))
        if job is not None:
            runstate.apply_job(run, slot_us, job)
        else:
            _judge(run, slot_us, now=now, now_us=now_us)


def verdict(run: ScheduleRunState) -> runstatus.RunVerdict:
    """How the ScheduleRun stands."""
    assert run.wanted is not None  # noqa: S101 - it began
    planned = run.course.opened if run.planned is None else run.planned
    identity = f"{run.schedule_key[0]}/{run.schedule_key[1]} (uid {run.begins_with})"
    if run.course.open:
        return runstatus.ending(identity, run.course, planned)
    return runstatus.cut_off(run.wanted, identity, run.course, planned)


def look_seconds(state: Orphaned, now: float) -> float:
    """Until the next look at the Jobs: the watch does not report those that lost their owner."""
    return _LOOK_SECONDS if now - state.since < 60 else _LATER_SECONDS


def is_patience_over(run: ScheduleRunState, now: float) -> bool:
    """Whether no outcome of what workers held can come any more."""
    assert run.orphaned is not None  # noqa: S101
    return now - run.orphaned.since >= PATIENCE_SECONDS


# -- which slots were enqueued ----------------------------------------------------------------


def _open_further(run: ScheduleRunState, found: Collection[jobs.Job]) -> None:
    """Slots that were enqueued after the status was written, by events, queue and Jobs."""
    state, wanted = run.orphaned, run.wanted
    assert state is not None and wanted is not None  # noqa: S101, PT018
    slots_us = {event.slot_us for event in run.early} | set(state.withdrawn or ())
    slots_us |= runstate.slots_of(run, found)
    is_newest_first = isinstance(wanted.slots, Backfill) and wanted.slots.newest_first
    for slot_us in sorted(slots_us - state.opened, reverse=is_newest_first):
        if slot_us in run.course.open:
            continue
        if manualruns.is_after(wanted, slot_us, state.after_us):
            furthest_us = run.course.cursor_us
            courses.opened(run.course, slot_us, Standing.UNKNOWN)
            state.opened.add(slot_us)
            if not manualruns.is_after(wanted, slot_us, furthest_us):
                run.course.cursor_us = furthest_us


# -- what became of them ---------------------------------------------------------------------------


def _judge(run: ScheduleRunState, slot_us: int, *, now: float, now_us: int) -> None:
    """Decide about a slot without a Job."""
    one, state = run.course.open[slot_us], run.orphaned
    assert state is not None  # noqa: S101
    if one.job_name:
        if now - state.missing.setdefault(slot_us, now) >= _MISSING_SECONDS:
            runstate.fail(run, slot_us, _WITH_ITS_JOB, now_us)
    elif one.standing is Standing.WANTED:
        courses.dropped(run.course, slot_us)
    elif _is_in_hand(one, slot_us, state.withdrawn):
        if is_patience_over(run, now):
            runstate.fail(run, slot_us, _UNREPORTED, now_us)
    elif one.started_us:
        runstate.fail(run, slot_us, _NOT_AGAIN, now_us)
    else:
        courses.dropped(run.course, slot_us)


def _is_in_hand(
    one: RunSlot, slot_us: int, withdrawn: Mapping[int, runstate.Withdrawn] | None
) -> bool:
    """Whether a worker may be attempting the slot, or has not reported its attempt yet."""
    if withdrawn is None:
        return True
    known = withdrawn.get(slot_us)
    return known is not None and known.is_held and one.attempts <= known.attempts
