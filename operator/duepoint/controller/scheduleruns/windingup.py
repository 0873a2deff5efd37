"""A ScheduleRun whose Schedule was deleted: nothing more starts, what had started is accounted for.

A ScheduleRun belongs to the Schedule that it began with, by its uid, and ends with it. Before a
deleted Schedule leaves the queue its occurrences are withdrawn, and for each the queue says whether
a worker held it. So it is clear where each open slot is: one that no worker held never runs; one
that a worker held is tried once more at most, and its outcome comes; one with a Job lasts until
that Job ends, or until Kubernetes deletes it with its Schedule; one that was not in the queue has
ended or was never there. Only a worker that dies tells nothing of its attempt: such a slot counts
as failed once the longest attempt is over. Pure but for being mutable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from duepoint.controller.scheduleruns import runline, runstatus
from duepoint.controller.scheduleruns.runline import Line, WindingUp
from duepoint.kube import jobs
from duepoint.runs import course as courses
from duepoint.runs.course import OpenSlot, Standing
from duepoint.schedules import manualruns
from duepoint.schedules.manualruns import Backfill

#: It is looked this often while something is waited for, and after a minute less often.
_LOOK_SECONDS = 2.0
_LATER_SECONDS = 15.0
#: The longest attempt takes 300 s; it may have waited in its worker, and its outcome travels.
PATIENCE_SECONDS = 360.0
#: The watch may tell how a Job has ended a moment after a list shows that it is gone.
_MISSING_SECONDS = 3.0

_WITH_ITS_JOB = "its Job was deleted with its Schedule before it had ended"
_NOT_AGAIN = "it is not tried again, because its Schedule was deleted"
_UNTOLD = "its Schedule was deleted, and no worker told how it ended"


def account(line: Line, found: Collection[jobs.Job], *, now: float, now_us: int) -> None:
    """What is known of every open slot counts; those that never run are open no more.

    Args:
        found: the Jobs that exist.
        now: monotonic.
    """
    by_name = {job.metadata.name: job for job in found}
    _open_further(line, found)
    runline.take_early(line)
    for slot_us in list(line.course.open):
        job = by_name.get(line.job_name(slot_us))
        if job is not None:
            runline.note_job(line, slot_us, job)
        else:
            _judge(line, slot_us, now=now, now_us=now_us)


def verdict(line: Line) -> runstatus.Verdict:
    """How it stands."""
    assert line.wanted is not None  # noqa: S101 - it began
    planned = line.course.opened if line.planned is None else line.planned
    identity = f"{line.schedule_key[0]}/{line.schedule_key[1]} (uid {line.begins_with})"
    if line.course.open:
        return runstatus.winding_up(identity, line.course, planned)
    return runstatus.cut_off(line.wanted, identity, line.course, planned)


def look_seconds(state: WindingUp, now: float) -> float:
    """Until the next look at the Jobs; nothing else tells of those that lost their owner."""
    return _LOOK_SECONDS if now - state.since < 60 else _LATER_SECONDS


def is_patience_over(line: Line, now: float) -> bool:
    """Whether nothing more will be told of what workers held."""
    assert line.winding_up is not None  # noqa: S101
    return now - line.winding_up.since >= PATIENCE_SECONDS


# -- which slots were handed over ----------------------------------------------------------------


def _open_further(line: Line, found: Collection[jobs.Job]) -> None:
    """Slots that were handed over after the status was written, as events, queue and Jobs tell."""
    state, wanted = line.winding_up, line.wanted
    assert state is not None and wanted is not None  # noqa: S101, PT018
    slots_us = {event.slot_us for event, _ in line.early} | set(state.withdrawn or ())
    slots_us |= runline.slots_of(line, found)
    is_newest_first = isinstance(wanted.slots, Backfill) and wanted.slots.newest_first
    for slot_us in sorted(slots_us - state.opened, reverse=is_newest_first):
        if slot_us in line.course.open:
            continue
        if manualruns.is_after(wanted, slot_us, state.after_us):
            furthest_us = line.course.cursor_us
            courses.opened(line.course, slot_us, Standing.UNKNOWN)
            state.opened.add(slot_us)
            if not manualruns.is_after(wanted, slot_us, furthest_us):
                line.course.cursor_us = furthest_us


# -- what became of them ---------------------------------------------------------------------------


def _judge(line: Line, slot_us: int, *, now: float, now_us: int) -> None:
    """Of a slot without a Job."""
    one, state = line.course.open[slot_us], line.winding_up
    assert state is not None  # noqa: S101
    if one.job_name:
        if now - state.missing.setdefault(slot_us, now) >= _MISSING_SECONDS:
            runline.fail(line, slot_us, _WITH_ITS_JOB, now_us)
    elif one.standing is Standing.WANTED:
        courses.dropped(line.course, slot_us)
    elif _is_in_hand(one, slot_us, state.withdrawn):
        if is_patience_over(line, now):
            runline.fail(line, slot_us, _UNTOLD, now_us)
    elif one.started_us:
        runline.fail(line, slot_us, _NOT_AGAIN, now_us)
    else:
        courses.dropped(line.course, slot_us)


def _is_in_hand(
    one: OpenSlot, slot_us: int, withdrawn: Mapping[int, runline.Withdrawn] | None
) -> bool:
    """Whether a worker may be trying the slot, or have tried it without telling yet."""
    if withdrawn is None:
        return True
    known = withdrawn.get(slot_us)
    return known is not None and known.is_held and one.attempts <= known.attempts
