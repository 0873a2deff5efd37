"""One ScheduleRun in the controller's hands: what it asks for, how far it is, what is written.

Owns the steps that need no I/O: which slots to open next, what an event or a look at the queue and
the Jobs says of open slots, and the names of Jobs that must not be deleted before the status tells
how they ended. The service performs what follows from it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from duepoint.controller.jobs import gone
from duepoint.controller.scheduleruns import runstatus
from duepoint.controller.scheduleruns.runsighting import RunSighting
from duepoint.controller.status.receipts import Receipt
from duepoint.kube import jobs, times
from duepoint.runs import course as courses
from duepoint.runs.course import Course, Standing
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import manualruns
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.manualruns import Backfill, Trigger, Wanted
from duepoint.schedules.slots import Slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was found out about slots of which nobody knew whether they had been handed over.

    Attributes:
        held: those that the queue holds.
        about: the slots it is true of; None = all there can be, because nobody of this term has
            handed any over yet.
    """

    held: frozenset[int]
    about: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """How an occurrence was found when it was taken out of the queue with its Schedule.

    Attributes:
        is_held: a worker may have been trying it.
        attempts: made before that one.
    """

    is_held: bool
    attempts: int


@dataclass(slots=True, kw_only=True)
class WindingUp:
    """What is known of a ScheduleRun whose Schedule was deleted.

    Attributes:
        since: when that was found, monotonic.
        after_us: the cursor then.
        withdrawn: its occurrences that were in the queue, by slot; None where this term did not
            take the Schedule out of it.
        opened: slots after the cursor that were found to have been handed over.
        missing: since when the Job of a slot is not there, monotonic.
    """

    since: float
    after_us: int | None
    withdrawn: Mapping[int, Withdrawn] | None = None
    opened: set[int] = field(default_factory=set)
    missing: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Line:
    """One ScheduleRun.

    Attributes:
        wanted: None where it cannot be carried out, for ``refusal``.
        written: the status as the API server has it, to our knowledge.
        schedule_uid, known: of its Schedule, once found; the definition is read again each time.
        begins_with: uid of the Schedule that the status tells, or is to tell before anything is
            handed over: it belongs to that one from then on.
        handing: held while slots are handed over.
        winding_up: once its Schedule was found to be deleted.
        facts: the newest, until they have been applied.
        early: events that wait for the slots to be known.
        guarded: slots whose Jobs must not be deleted, because the status does not tell their end.
        ended_us: when all of it had ended and the API server was told; None = not yet.
        is_outdated: somebody newer has written the status; what we know of it is wrong.
        is_told: whether people were warned of what is odd about it.
    """

    seen: RunSighting
    wanted: Wanted | None
    refusal: runstatus.Verdict | None = None
    course: Course = field(default_factory=Course)
    written: dict[str, Any] = field(default_factory=dict)
    schedule_uid: str = ""
    known: Definition | None = None
    begins_with: str = ""
    handing: asyncio.Lock = field(default_factory=asyncio.Lock)
    winding_up: WindingUp | None = None
    planned: int | None = None
    facts: Facts | None = None
    early: list[tuple[RunEvent, Receipt | None]] = field(default_factory=list)
    guarded: set[int] = field(default_factory=set)
    receipts: list[Receipt] = field(default_factory=list)
    ended_us: int | None = None
    is_outdated: bool = False
    is_told: bool = False
    verdict: runstatus.Verdict | None = None
    written_at: float | None = None
    waits: Iterator[float] | None = None

    @property
    def identity(self) -> str:
        return f"{self.seen.namespace}/{self.seen.name}"

    @property
    def has_begun(self) -> bool:
        """Whether its status tells which Schedule it belongs to."""
        return bool(self.written.get("scheduleUid"))

    @property
    def schedule_key(self) -> tuple[str, str]:
        """Namespace and name of its Schedule."""
        return self.seen.namespace, "" if self.wanted is None else self.wanted.schedule

    def job_name(self, slot_us: int) -> str:
        """The one name that a Job of this slot can have."""
        return jobs.name_of(self.schedule_key[1], slot_us, self.seen.uid)


def line_of(seen: RunSighting, wanted: Wanted | None, refusal: runstatus.Verdict | None) -> Line:
    """A ScheduleRun as an earlier process left it, or a new one."""
    line = Line(seen=seen, wanted=wanted, refusal=refusal)
    load(line, seen)
    return line


def load(line: Line, seen: RunSighting) -> None:
    """Go on from the status that the API server has."""
    line.seen = seen
    line.course = runstatus.loaded(seen.status)
    line.ended_us = runstatus.ended_us(seen.status)
    line.written = _decoded(seen.status)
    line.begins_with = line.schedule_uid = runstatus.schedule_uid(seen.status)
    line.planned = runstatus.planned(seen.status)
    line.is_outdated = False


def _decoded(status: bytes) -> dict[str, Any]:
    try:
        read = msgspec.json.decode(status)
    except msgspec.DecodeError:
        return {}
    return read if isinstance(read, dict) else {}


# -- which slots there are -----------------------------------------------------------------------


def timeline(line: Line) -> Slots:
    """All slots of its Schedule."""
    assert line.known is not None  # noqa: S101 - asked for once it is found
    return manualruns.timeline(line.known)


def following(line: Line) -> Iterator[int]:
    """The slots that were not opened yet, in their order."""
    assert line.known is not None and line.wanted is not None  # noqa: S101, PT018
    return manualruns.following(
        line.wanted,
        timeline(line),
        line.course.cursor_us,
        whole_seconds=line.known.rule.whole_seconds,
    )


def count(line: Line) -> int:
    """How many slots it has in all; the slots opened so far count as they were."""
    assert line.wanted is not None  # noqa: S101
    left = manualruns.left(line.wanted, timeline(line), line.course.cursor_us)
    return line.course.opened + left


def parallel(line: Line) -> int:
    """How many slots may be open at once.

    Runs of one backfill that exclude one another by the Schedule's policy go one after the other:
    handed over together, all but one would be skipped, or replace each other.
    """
    assert line.known is not None and line.wanted is not None  # noqa: S101, PT018
    if not isinstance(line.wanted.slots, Backfill):
        return 1
    policy = line.known.rule.policy
    if policy.concurrency == "Allow":
        return line.wanted.slots.max_parallel
    return min(line.wanted.slots.max_parallel, max(1, policy.max_concurrency))


def may_wait(line: Line) -> bool:
    """Whether its slot waits for runs of the Schedule to end, by its own word."""
    if line.wanted is None or line.ended_us is not None or not line.course.open:
        return False
    slots = line.wanted.slots
    return isinstance(slots, Trigger) and slots.concurrency == "Queue"


def open_next(line: Line) -> list[int]:
    """The slots to hand over now, opened; those that are open and were not handed over first."""
    room = parallel(line) - len(line.course.open)
    for slot_us in itertools.islice(following(line), max(0, room)):
        courses.opened(line.course, slot_us)
    return line.course.in_standing(Standing.WANTED)


def open_through(line: Line, slot_us: int) -> None:
    """The slot was handed over by a former leader: it is open, and so are those before it."""
    assert line.wanted is not None  # noqa: S101
    course = line.course
    if slot_us in course.open or not manualruns.is_after(line.wanted, slot_us, course.cursor_us):
        return
    for one_us in following(line):
        if one_us != slot_us and manualruns.is_after(line.wanted, one_us, slot_us):
            break  # not a slot of the newest timing
        courses.opened(course, one_us, Standing.UNKNOWN)
        if one_us == slot_us:
            return
    courses.opened(course, slot_us, Standing.UNKNOWN)


# -- what becomes of them ------------------------------------------------------------------------


def is_told_by(line: Line, event: RunEvent) -> bool:
    """Whether the event may tell of this one; a Job tells only of its own Schedule's runs."""
    if not event.job_uid:
        return True
    is_its_own = event.uid in (line.schedule_uid, line.begins_with)
    return is_its_own and (event.namespace, event.name) == line.schedule_key


def take(line: Line, event: RunEvent, receipt: Receipt | None) -> bool:
    """The event counts from now on; False where it tells nothing new, or has to wait."""
    if line.known is None:
        if receipt is not None:
            receipt.expect()
        line.early.append((event, receipt))
        return line.winding_up is not None
    if not courses.told(line.course, event):
        return False
    if receipt is not None:
        receipt.expect()
        line.receipts.append(receipt)
    return True


def take_early(line: Line) -> None:
    """The slots are known: what was told before counts now."""
    early, line.early = line.early, []
    for event, receipt in early:
        if line.known is not None:
            open_through(line, event.slot_us)
        courses.told(line.course, event)
        if receipt is not None:
            line.receipts.append(receipt)


def has_ended(line: Line, slot_us: int) -> bool:
    """Whether the slot was opened and has ended; one that was never opened has not."""
    assert line.wanted is not None  # noqa: S101 - of one that is carried out
    course = line.course
    return slot_us not in course.open and not manualruns.is_after(
        line.wanted, slot_us, course.cursor_us
    )


def is_doubtful(line: Line) -> bool:
    """Whether of some slot nobody knows whether it was handed over."""
    return bool(line.course.in_standing(Standing.UNKNOWN))


def doubt_lost(line: Line, facts: Facts) -> None:
    """What was handed over and is neither in the queue nor told to have ended may be lost."""
    for slot_us, one in line.course.open.items():
        is_meant = facts.about is None or slot_us in facts.about
        if is_meant and one.standing is Standing.HANDED and slot_us not in facts.held:
            one.standing = Standing.UNKNOWN
    line.facts = facts


def resolve(line: Line, found: Mapping[str, jobs.Job]) -> None:
    """Every slot that the facts are about stands somewhere; the others stay unknown.

    Args:
        found: Jobs of the Schedule by name.
    """
    facts, line.facts = line.facts, None
    if facts is None:
        return
    if facts.about is None:
        _adopt(line, facts.held, found.values())
    for slot_us in line.course.in_standing(Standing.UNKNOWN):
        if facts.about is None or slot_us in facts.about:
            _resolve(line, slot_us, found.get(line.job_name(slot_us)), slot_us in facts.held)


def _adopt(line: Line, held: Collection[int], found: Iterable[jobs.Job]) -> None:
    """A former leader handed over more than the status tells."""
    for slot_us in sorted({*held, *slots_of(line, found)}):
        open_through(line, slot_us)


def _resolve(line: Line, slot_us: int, job: jobs.Job | None, is_held: bool) -> None:  # noqa: FBT001
    one = line.course.open[slot_us]
    if job is not None:
        one.standing = Standing.HANDED
        note_job(line, slot_us, job)
        return
    if is_held:
        one.standing = Standing.HANDED
    elif one.job_name:
        courses.told(line.course, _gone(line, slot_us))
    else:
        one.standing = Standing.WANTED


def _gone(line: Line, slot_us: int) -> RunEvent:
    """Its Job is not there, and its end was not seen."""
    if line.course.open[slot_us].is_replaced:
        return _event(line, slot_us, RunState.REPLACED, Reason.REPLACED, "")
    why = gone.lost()
    return _event(line, slot_us, RunState.FAILED, why.reason, why.message)


def _events(line: Line, slot_us: int, job: jobs.Job) -> Iterator[RunEvent]:
    """What a Job that exists tells: it has started, and perhaps ended."""
    created_us = _instant_us(job.metadata.creation_timestamp)
    running = _event(line, slot_us, RunState.RUNNING, Reason.CREATED, "")
    yield msgspec.structs.replace(
        running, started_us=created_us, at_us=created_us, job_name=job.metadata.name
    )
    ended = jobs.finished(job)
    if ended is None:
        return
    state = RunState.SUCCEEDED if ended.succeeded else RunState.FAILED
    reason = Reason.SUCCEEDED if ended.succeeded else Reason.JOB_FAILED
    said = "" if ended.succeeded else f"{ended.reason}: {ended.message}"
    at_us = ended.at_us or created_us
    event = _event(line, slot_us, state, reason, said)
    yield msgspec.structs.replace(event, at_us=at_us, finished_us=at_us)


def _event(line: Line, slot_us: int, state: RunState, reason: str, message: str) -> RunEvent:
    return RunEvent(
        uid=line.schedule_uid,
        namespace=line.seen.namespace,
        name=line.schedule_key[1],
        generation=0,
        slot_us=slot_us,
        trigger="" if line.wanted is None else line.wanted.trigger,
        state=state,
        reason=reason,
        at_us=0,
        message=message,
        run_uid=line.seen.uid,
    )


def note_job(line: Line, slot_us: int, job: jobs.Job) -> None:
    """What a Job that exists tells of its slot counts."""
    for event in _events(line, slot_us, job):
        courses.told(line.course, event)


def fail(line: Line, slot_us: int, told: str, now_us: int) -> None:
    """The slot has failed now, without an event that says so."""
    event = _event(line, slot_us, RunState.FAILED, Reason.DELETED, told)
    courses.told(line.course, msgspec.structs.replace(event, at_us=now_us, finished_us=now_us))


def slots_of(line: Line, found: Iterable[jobs.Job]) -> set[int]:
    """The slots whose Jobs are among these."""
    return {
        slot_us
        for job in found
        if (slot_us := _slot_us(job)) and job.metadata.name == line.job_name(slot_us)
    }


def _slot_us(job: jobs.Job) -> int:
    """From the annotation; 0 for a Job without one, which is nobody's."""
    return jobs.slot_us(job) or 0


def _instant_us(text: str | None) -> int:
    try:
        return times.parse_us(text) if text else 0
    except ValueError:
        return 0
