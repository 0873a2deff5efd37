"""The state of one ScheduleRun: its spec, its progress and its published status.

Holds the steps that need no I/O: choosing the slots to enqueue next, and finding lost ones.
``scheduleruns`` does the I/O. A slot is *open* from the moment it is enqueued until its run has
ended; ``runstatus`` counts the slots.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from duepoint import errors
from duepoint.controller.jobs import jobstate
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import runstatus
from duepoint.controller.scheduleruns.runstatus import Progress, RunSlot
from duepoint.controller.status import folding
from duepoint.kube import jobbuilder, jobs, schedules
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted


@dataclass(slots=True, kw_only=True)
class ScheduleRunState:
    """One ScheduleRun.

    Attributes:
        seen: without its texts.
        wanted: the parsed spec without its payload; None if invalid.
        verdict: why it cannot go on or has ended early; None = it follows from the progress.
        published: the API server's status, as far as we know.
        published_at: when the status was last written, monotonic.
        planned: how many slots it has in all; None = not counted yet.
        is_doubtful: whether it is unknown which open slots are in the queue: after a new leader, an
            enqueue without an answer, or a loss of Redis.
    """

    seen: Observed
    wanted: Wanted | None = None
    verdict: runstatus.Verdict | None = None
    course: Progress = field(default_factory=Progress)
    published: runstatus.RunStatus = field(default_factory=runstatus.RunStatus)
    published_at: float = float("-inf")
    planned: int | None = None
    is_doubtful: bool = False

    @property
    def schedule_key(self) -> tuple[str, str]:
        """The namespace and name of its Schedule."""
        return self.seen.namespace, "" if self.wanted is None else self.wanted.schedule

    def job_name(self, slot_us: int) -> str:
        """Return the only name that a Job of this slot can have."""
        return jobbuilder.name_of(self.schedule_key[1], slot_us, self.seen.uid)

    def owner(self) -> jobs.JobOwner:
        """Return its Schedule as the controller of its Jobs."""
        return jobs.JobOwner(*self.schedule_key, self.course.schedule_uid)

    def current_verdict(self) -> runstatus.Verdict:
        """Return the verdict to publish: an early end, or what follows from its progress."""
        if self.verdict is not None or self.wanted is None or self.planned is None:
            assert self.verdict is not None  # noqa: S101 - each reconcile leaves one of the two
            return self.verdict
        return runstatus.of_progress(self.wanted, self.course, self.planned)


def run_of(seen: Observed, records: Iterable[bytes]) -> ScheduleRunState:
    """Return the state of a ScheduleRun: new, or continued from a former leader's.

    A payload has up to 64 KiB, and thousands of ScheduleRuns may wait. So it is validated and
    dropped, and read again when the run is enqueued.
    """
    run = ScheduleRunState(seen=seen.without_texts())
    try:
        wanted = run.wanted = schedules.wanted(seen.spec, created_us=seen.created_us)
        if isinstance(wanted.slots, Trigger) and wanted.slots.payload:
            run.wanted = replace(wanted, slots=replace(wanted.slots, payload=b""))
    except errors.InvalidSpec as invalid:
        run.verdict = runstatus.failed(Reason(invalid.errors[0].reason), str(invalid))
    adopt(run, runstatus.read(seen.status), records)
    return run


def adopt(run: ScheduleRunState, status: runstatus.RunStatus, records: Iterable[bytes]) -> None:
    """Continue from the status that the API server has, or from a newer record of the ledger."""
    run.published = status
    run.course = runstatus.newest(status.course(), *records)
    if status.runs is not None and status.runs.planned is not None:
        run.planned = status.runs.planned
    run.is_doubtful = bool(run.course.open)


def shows_end(run: ScheduleRunState, slot_us: int) -> bool:
    """Whether the published status shows how the run of a slot ended."""
    if run.wanted is None or run.published.ended_us is not None:
        return True
    if slot_us in run.course.open or slot_us in run.published.course().open:
        return False
    return not manualruns.is_after(run.wanted, slot_us, run.published.cursor_us)


# -- choosing slots ------------------------------------------------------------------------------


def too_many(wanted: Wanted, course: Progress, planned: int) -> runstatus.Verdict | None:
    """Return the refusal of a range with too many slots, before any of them starts."""
    if not isinstance(wanted.slots, Backfill) or course.opened or planned <= wanted.slots.limit:
        return None
    said = (
        f"the range holds {planned} slots and spec.backfill.limit allows {wanted.slots.limit}, so "
        "nothing was started; write a shorter range, or a limit of up to 10000"
    )
    return runstatus.failed(Reason.INVALID_SPEC, said)


def open_next(wanted: Wanted, known: Definition, course: Progress) -> list[int]:
    """Open the next slots, and return them.

    If the Schedule's policy lets no runs overlap, the runs of a backfill go one after the other:
    enqueued together, all but one would be skipped, or they would replace each other.
    """
    most, policy = 1, known.rule.policy
    if isinstance(wanted.slots, Backfill):
        most = wanted.slots.max_parallel
        if policy.concurrency_policy != "Allow":
            most = min(most, max(1, policy.max_concurrency))
    room = max(0, most - len(course.open))
    following = manualruns.following(
        wanted,
        manualruns.timeline(known),
        course.cursor_us,
        whole_seconds=known.rule.whole_seconds,
    )
    opened = list(itertools.islice(following, room))
    for slot_us in opened:
        course.cursor_us, course.open[slot_us] = slot_us, RunSlot()
    return opened


def recover(run: ScheduleRunState, slot_us: int, job: jobs.Job | None) -> bool:
    """Apply the Job of an open slot that is not in the queue; return whether the slot was lost."""
    slot = run.course.open.get(slot_us)
    if slot is None or (job is None and not slot.job_name):
        return slot is not None
    if job is not None:
        start = jobstate.start_of(job, run.owner(), slot_us)
        ended = jobstate.end_of(job, run.owner(), slot_us, jobstate.created_us(job)) or start
    else:
        ended = folding.of_run(run.owner(), slot_us, 0, message=jobstate.LOST)
    runstatus.applied(run.course, ended)
    return False
