"""The state of one ScheduleRun: what it asks for, how far it has come, what is published of it.

Owns the steps that need no I/O: which slots to open next, and what an event, the queue or a Job
says of open slots. ``scheduleruns`` performs what follows. A slot is *open* from the moment it is
to be enqueued until its run has ended; ``runs.progress`` counts them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from duepoint.controller.jobs import jobstate
from duepoint.controller.observed import Observed
from duepoint.controller.scheduleruns import runstatus
from duepoint.controller.scheduleruns.runreads import ReadRun
from duepoint.kube import jobbuilder, jobs
from duepoint.runs import progress as courses
from duepoint.runs.progress import Progress, Standing
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted
from duepoint.schedules.slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryFacts:
    """What an inventory says of slots that may have been enqueued.

    Attributes:
        held: the slots in the queue.
        about: the slots that it says something about; None = all slots, because no leader of this
            term has enqueued any yet.
    """

    held: frozenset[int]
    about: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """An occurrence that was withdrawn with its Schedule.

    Attributes:
        is_held: a worker may have been attempting it.
        attempts: made before that one.
    """

    is_held: bool
    attempts: int


@dataclass(slots=True, kw_only=True)
class Orphaned:
    """What is known of a ScheduleRun whose Schedule was deleted.

    Attributes:
        since: when that was seen, monotonic.
        after_us: the cursor then.
        withdrawn: its occurrences that were in the queue, by slot; None where this term did not
            take the Schedule out of the queue.
        opened: slots after the cursor that turned out to have been enqueued.
        missing: since when the Job of a slot is not there, monotonic.
        is_caught_up: outcomes from before have been read.
    """

    since: float
    after_us: int | None
    withdrawn: Mapping[int, Withdrawn] | None = None
    opened: set[int] = field(default_factory=set)
    missing: dict[int, float] = field(default_factory=dict)
    is_caught_up: bool = False


@dataclass(slots=True, kw_only=True)
class ScheduleRunState:
    """One ScheduleRun.

    Attributes:
        seen: without its texts.
        wanted: None where it cannot be carried out, because of ``refusal``; without a large
            payload (``runreads``).
        published: the status as the API server has it, as far as is known.
        desired: the newest status to publish.
        published_at: when it was written last, monotonic.
        schedule_uid, known: its Schedule, once found; the definition is read again at each look.
        begins_with: uid of the Schedule that the status names, or is to name before any slot is
            enqueued: the ScheduleRun belongs to that Schedule from then on.
        enqueuing: held while slots are enqueued.
        orphaned: once its Schedule was found to be deleted.
        facts: of the newest inventory, until they have been applied.
        early: events that wait for the slots to be known.
        guarded: slots whose Jobs must not be deleted, because the status does not show their end.
        unshown: outcomes that no published status shows.
        shows, writes: how many of those ``desired`` shows, and the status that is being written.
        ended_us: when the ScheduleRun had ended, once that is published; None = not yet.
        is_outdated: a newer writer has published a status that is not known here yet.
        is_warned: users were warned if anything about it is odd.
    """

    seen: Observed
    wanted: Wanted | None
    refusal: runstatus.RunVerdict | None = None
    course: Progress = field(default_factory=Progress)
    published: dict[str, Any] = field(default_factory=dict)
    desired: dict[str, Any] | None = None
    published_at: float | None = None
    schedule_uid: str = ""
    known: Definition | None = None
    begins_with: str = ""
    enqueuing: asyncio.Lock = field(default_factory=asyncio.Lock)
    orphaned: Orphaned | None = None
    planned: int | None = None
    facts: InventoryFacts | None = None
    early: list[RunEvent] = field(default_factory=list)
    guarded: set[int] = field(default_factory=set)
    unshown: list[RunEvent] = field(default_factory=list)
    shows: int = 0
    writes: int = 0
    ended_us: int | None = None
    is_outdated: bool = False
    is_warned: bool = False
    verdict: runstatus.RunVerdict | None = None

    @property
    def has_begun(self) -> bool:
        """Whether its status names the Schedule that it belongs to."""
        return bool(self.published.get("scheduleUid"))

    @property
    def is_published(self) -> bool:
        """Whether it has a status at all."""
        return bool(self.published.get("conditions"))

    @property
    def schedule_key(self) -> tuple[str, str]:
        """Namespace and name of its Schedule."""
        return self.seen.namespace, "" if self.wanted is None else self.wanted.schedule

    def job_name(self, slot_us: int) -> str:
        """The only name that a Job of this slot can have."""
        return jobbuilder.name_of(self.schedule_key[1], slot_us, self.seen.uid)

    def owner(self) -> jobs.JobOwner:
        """Its Schedule as the controller of its Jobs."""
        return jobs.JobOwner(*self.schedule_key, self.schedule_uid or self.begins_with)


def run_of(read: ReadRun) -> ScheduleRunState:
    """A ScheduleRun as a former leader left it, or a new one."""
    run = ScheduleRunState(seen=read.seen, wanted=read.wanted, refusal=read.refusal)
    adopt_published(run, read.seen)
    return run


def _decoded(status: bytes) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(status)
    except msgspec.DecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def is_published(run: ScheduleRunState, status: bytes) -> bool:
    """Whether this is the status that is known to be published."""
    return _decoded(status) == run.published


def adopt_published(run: ScheduleRunState, seen: Observed) -> None:
    """The state continues from the status that the API server has."""
    run.seen = seen.without_texts()
    run.published = _decoded(seen.status)
    status = runstatus.read(run.published)
    run.course = status.course()
    run.ended_us = status.ended_us
    run.begins_with = run.schedule_uid = status.schedule_uid
    run.planned = status.planned
    run.is_outdated = False


# -- which slots there are -----------------------------------------------------------------------


def _timeline(run: ScheduleRunState) -> Slots:
    """All slots of its Schedule."""
    assert run.known is not None  # noqa: S101 - asked for once it is found
    return manualruns.timeline(run.known)


def _following(run: ScheduleRunState) -> Iterator[int]:
    """The slots that were not opened yet, in their order."""
    assert run.known is not None and run.wanted is not None  # noqa: S101, PT018
    return manualruns.following(
        run.wanted,
        _timeline(run),
        run.course.cursor_us,
        whole_seconds=run.known.rule.whole_seconds,
    )


def count(run: ScheduleRunState) -> int:
    """How many slots it has in all; those opened so far count as they were."""
    assert run.wanted is not None  # noqa: S101
    return run.course.opened + manualruns.left(run.wanted, _timeline(run), run.course.cursor_us)


def _parallel(run: ScheduleRunState) -> int:
    """How many slots may be open at once.

    Where the Schedule's policy lets no runs overlap, the runs of a backfill go one after the other:
    enqueued together, all but one would be skipped, or replace each other.
    """
    assert run.known is not None and run.wanted is not None  # noqa: S101, PT018
    if not isinstance(run.wanted.slots, Backfill):
        return 1
    policy = run.known.rule.policy
    if policy.concurrency == "Allow":
        return run.wanted.slots.max_parallel
    return min(run.wanted.slots.max_parallel, max(1, policy.max_concurrency))


def may_wait(run: ScheduleRunState) -> bool:
    """Whether its slot waits for other runs of the Schedule, by its own policy."""
    if run.wanted is None or run.ended_us is not None or not run.course.open:
        return False
    slots = run.wanted.slots
    return isinstance(slots, Trigger) and slots.concurrency == "Queue"


def needs_payload(run: ScheduleRunState) -> bool:
    """Whether its slot is to be enqueued, and its payload is in the object alone."""
    assert run.wanted is not None  # noqa: S101
    slots = run.wanted.slots
    if not isinstance(slots, Trigger) or not slots.is_payload_apart:
        return False
    return run.course.cursor_us is None or bool(run.course.in_standing(Standing.WANTED))


def open_next(run: ScheduleRunState) -> list[int]:
    """The slots to enqueue now, opened; those that are open and not enqueued come first."""
    free = _parallel(run) - len(run.course.open)
    for slot_us in itertools.islice(_following(run), max(0, free)):
        courses.opened(run.course, slot_us)
    return run.course.in_standing(Standing.WANTED)


def _open_through(run: ScheduleRunState, slot_us: int) -> None:
    """A former leader enqueued the slot: it is open, and so are those before it."""
    assert run.wanted is not None  # noqa: S101
    course = run.course
    if slot_us in course.open or not manualruns.is_after(run.wanted, slot_us, course.cursor_us):
        return
    for next_us in _following(run):
        if next_us != slot_us and manualruns.is_after(run.wanted, next_us, slot_us):
            break  # not a slot of the newest timing
        courses.opened(course, next_us, Standing.UNKNOWN)
        if next_us == slot_us:
            return
    courses.opened(course, slot_us, Standing.UNKNOWN)


# -- events --------------------------------------------------------------------------------------


def is_about(run: ScheduleRunState, event: RunEvent) -> bool:
    """Whether the event may be about this one; a Job belongs to its own Schedule's runs only."""
    if not event.job_uid:
        return True
    is_its_own = event.uid in (run.schedule_uid, run.begins_with)
    return is_its_own and (event.namespace, event.name) == run.schedule_key


def apply(run: ScheduleRunState, event: RunEvent) -> bool:
    """The event counts from now on; False where it changes nothing that is to be published."""
    if run.known is None:
        run.early.append(event)
        return run.orphaned is not None
    return courses.applied(run.course, event)


def apply_early(run: ScheduleRunState) -> None:
    """The slots are known, so the events that waited for them count."""
    early, run.early = run.early, []
    for event in early:
        if run.known is not None:
            _open_through(run, event.slot_us)
        courses.applied(run.course, event)


# -- facts ---------------------------------------------------------------------------------------


def is_unknown(run: ScheduleRunState) -> bool:
    """Whether it is unknown of some slot if it was enqueued."""
    return bool(run.course.in_standing(Standing.UNKNOWN))


def suspect_lost(run: ScheduleRunState, facts: InventoryFacts) -> None:
    """An enqueued slot that is neither in the queue nor known to have ended may be lost."""
    for slot_us, slot in run.course.open.items():
        is_meant = facts.about is None or slot_us in facts.about
        if is_meant and slot.standing is Standing.HANDED and slot_us not in facts.held:
            slot.standing = Standing.UNKNOWN
    run.facts = facts


def resolve(run: ScheduleRunState, found: Mapping[str, jobs.Job]) -> None:
    """It is known again where each slot is that the facts are about.

    Args:
        found: Jobs of the Schedule by name.
    """
    facts, run.facts = run.facts, None
    if facts is None:
        return
    if facts.about is None:  # a former leader enqueued more than the status shows
        for slot_us in sorted({*facts.held, *slots_of(run, found.values())}):
            _open_through(run, slot_us)
    for slot_us in run.course.in_standing(Standing.UNKNOWN):
        if facts.about is None or slot_us in facts.about:
            job = found.get(run.job_name(slot_us))
            _resolve(run, slot_us, job, is_held=slot_us in facts.held)


def _resolve(run: ScheduleRunState, slot_us: int, job: jobs.Job | None, *, is_held: bool) -> None:
    slot = run.course.open[slot_us]
    if job is not None:
        slot.standing = Standing.HANDED
        apply_job(run, slot_us, job)
    elif is_held:
        slot.standing = Standing.HANDED
    elif not slot.job_name:
        slot.standing = Standing.WANTED
    elif slot.is_replaced:
        _end(run, slot_us, RunState.REPLACED, jobstate.EndReason(Reason.REPLACED, ""))
    else:
        _end(run, slot_us, RunState.FAILED, jobstate.LOST)


def apply_job(run: ScheduleRunState, slot_us: int, job: jobs.Job) -> None:
    """A Job exists: its run has started, and perhaps ended."""
    owner = run.owner()
    courses.applied(run.course, jobstate.start_of(job, owner, slot_us))
    ended = jobstate.end_of(job, owner, slot_us, jobstate.created_us(job))
    if ended is not None:
        courses.applied(run.course, ended)


def fail(run: ScheduleRunState, slot_us: int, message: str, now_us: int) -> None:
    """The slot has failed now, without an event."""
    _end(run, slot_us, RunState.FAILED, jobstate.EndReason(Reason.DELETED, message), now_us)


def _end(
    run: ScheduleRunState, slot_us: int, state: RunState, why: jobstate.EndReason, now_us: int = 0
) -> None:
    event = RunEvent(
        uid=run.schedule_uid,
        namespace=run.seen.namespace,
        name=run.schedule_key[1],
        generation=0,
        slot_us=slot_us,
        trigger="" if run.wanted is None else run.wanted.trigger,
        state=state,
        reason=why.reason,
        at_us=now_us,
        finished_us=now_us,
        message=why.message,
        run_uid=run.seen.uid,
    )
    courses.applied(run.course, event)


def slots_of(run: ScheduleRunState, found: Iterable[jobs.Job]) -> set[int]:
    """The slots whose Jobs are among these."""
    return {
        slot_us
        for job in found
        if (slot_us := jobs.slot_us(job)) and job.metadata.name == run.job_name(slot_us)
    }
