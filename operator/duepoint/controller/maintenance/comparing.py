"""What becomes of points that waited on a server that went back, by what is known otherwise.

The state of such a server is a true one, but an older: every slot before a chain was handed over,
and nothing is known of what came after. What is known of that stands in the statuses, in what this
process remembers, and in the Jobs. A slot that has ended by any of these is gone; the rest is due.
Slots that are open although their chain stood before them lost their own point with the server, and
get one again. A stream in our own Redis went back together with its slots: there the queue alone
is right. No I/O: what is known is asked of ``Knowledge``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from duepoint.controller import plan
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.scheduleruns.runstates import ScheduleRunStates
from duepoint.controller.status.states import ScheduleStates
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import suspectpoints
from duepoint.kube import jobbuilder, jobs
from duepoint.runs.watermark import Watermark
from duepoint.schedules import points
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import PointKind

#: Slots of one held point that are looked at one by one, and those that its record names.
_MOST_LOOKED_AT = 2_000
_MOST_NAMED = 200


class Knowledge(Protocol):
    """What has become of slots, by all sources but the queue, which may have lost it."""

    def settled(self, uid: str) -> Watermark | None:
        """Which regular slots have ended; None = of a Schedule that is not there."""
        ...

    def has_ended(self, known: Definition, slot_us: int) -> bool:
        """Whether a regular slot has ended though its status may not say so yet."""
        ...

    def is_told_as_ended(self, uid: str, slot_us: int) -> bool:
        """Whether a status that is written says that a regular slot has ended."""
        ...

    def run_has_ended(self, run_uid: str, slot_us: int) -> bool | None:
        """The same of a slot that a ScheduleRun wanted; None = that is unknown yet."""
        ...

    def started(self, uid: str) -> int:
        """How many regular runs have started."""
        ...


class Endings:
    """``Knowledge`` of a leader: by the statuses, by what is remembered of runs, and by Jobs."""

    def __init__(self, *, states: ScheduleStates, jobs: JobWatch, runs: ScheduleRunStates) -> None:
        self._states = states
        self._jobs = jobs
        self._runs = runs

    def settled(self, uid: str) -> Watermark | None:
        return self._states.settled(uid)

    def has_ended(self, known: Definition, slot_us: int) -> bool:
        of_job = known.rule.whole_seconds
        if self._states.knows_end(known.uid, slot_us, of_job=of_job):
            return True
        # A Job's slot ends with its creation, also where its answer was lost.
        owner = jobs.JobOwner(known.namespace, known.name, known.uid)
        return of_job and self._jobs.has(owner, jobbuilder.name_of(known.name, slot_us))

    def is_told_as_ended(self, uid: str, slot_us: int) -> bool:
        return self._states.is_published_as_ended(uid, slot_us)

    def run_has_ended(self, run_uid: str, slot_us: int) -> bool | None:
        return self._runs.has_ended(run_uid, slot_us)

    def started(self, uid: str) -> int:
        return self._states.started(uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparisons:
    """What a part of the points that wait has led to.

    Attributes:
        compared: for the queue.
        ended: regular slots (uid, slot) that have ended, and of which no point is left then; a
            status may list them as open.
        waiting: how many stay as they are, for now.
    """

    compared: suspectpoints.PointComparison
    ended: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    waiting: int = 0


def compare(
    part: Sequence[suspectpoints.HeldPoint],
    knowledge: Knowledge,
    *,
    back_us: int,
    held: Collection[bytes] = (),
    goes_back: Callable[[Definition], bool] = lambda _known: False,
) -> Comparisons:
    """What the comparison says of these points.

    Args:
        part: points of one shard.
        back_us: up to which instant the shard is in doubt; 0 = it is not any more.
        held: ids of schedules of which a held point is in the queue.
        goes_back: whether what the target of a schedule took is lost with the server, too.
    """
    found = Comparisons(compared=suspectpoints.PointComparison())
    waiting = 0
    for one in part:
        known = one.definition
        if known is None or one.record is None or _is_superseded(one.point, known):
            _let_go(found, one)
            continue
        settled = knowledge.settled(known.uid)
        if settled is None:
            waiting += 1  # deleted, and to be removed; or not seen yet
        elif one.point.kind is PointKind.CHAIN:
            waiting += not _put_chain_back(found, one, known, back_us, is_held=known.id in held)
        elif one.point.kind is PointKind.HELD:
            if known.runs_left is not None:
                found.compared.started.append((known.id, knowledge.started(known.uid)))
            if goes_back(known):
                _go_on(found, one, one.record, settled_us=settled.through_us)
            else:
                _compare_held(found, one, known, settled, knowledge)
        elif one.point.kind in points.RUN_KINDS:
            ended = knowledge.run_has_ended(one.record.run_uid, one.point.slot_us)
            waiting += ended is None
            _end_or_go_on(found, one, ended)
        else:
            slot_us = one.point.slot_us
            ended = settled.has_ended(slot_us) or knowledge.has_ended(known, slot_us)
            if not one.record.replayed_us:  # what was replayed is open again since
                ended = ended or knowledge.is_told_as_ended(known.uid, slot_us)
            ended = ended and not goes_back(known)
            _end_or_go_on(found, one, ended)
            if ended:
                found.ended.append((known.uid, slot_us))
    return dataclasses.replace(found, waiting=waiting)


def _is_superseded(point: points.DuePoint, known: Definition) -> bool:
    is_timed = point.kind in points.TIMED_KINDS
    return is_timed and point.timing_version != known.timing_version


def _let_go(found: Comparisons, one: suspectpoints.HeldPoint) -> None:
    """A worker knows what to do with it: an end without a trace there is none."""
    if one.definition is None:
        found.compared.gone.append(one)
    else:
        found.compared.due.append((one, None))


def _end_or_go_on(found: Comparisons, one: suspectpoints.HeldPoint, ended: bool | None) -> None:  # noqa: FBT001
    if ended:
        found.compared.gone.append(one)
    elif ended is not None:
        found.compared.due.append((one, None))


def _put_chain_back(
    found: Comparisons,
    chain: suspectpoints.HeldPoint,
    known: Definition,
    back_us: int,
    *,
    is_held: bool,
) -> bool:
    """A chain with counted runs goes on behind the slots that waited with it."""
    if is_held:
        return False
    timeline = plan.slots_of(known)
    newest_us = timeline.newest_due(back_us)
    following = timeline.next_after(back_us if newest_us is None else newest_us)
    # Without a slot it is due at once: the worker that claims it completes the schedule.
    found.compared.chains.append((chain, back_us if following is None else following.due_us))
    return True


def _compare_held(
    found: Comparisons,
    one: suspectpoints.HeldPoint,
    known: Definition,
    settled: Watermark,
    knowledge: Knowledge,
) -> None:
    record = one.record or messages.OccurrenceRecord()
    first_us = record.from_us or one.point.slot_us
    timeline = plan.slots_of(known)
    for slot_us in settled.open_us:
        if slot_us < first_us:
            continue
        # A status is older than what is known: a Job that is there has ended its slot.
        if knowledge.has_ended(known, slot_us):
            found.ended.append((known.uid, slot_us))
        else:
            lost = _lost(known, slot_us, settled, timeline.due_slot(slot_us).due_us)
            found.compared.added.append((one, lost))
    following = timeline.next_after(max(settled.through_us, first_us - 1))
    ended: list[int] = []
    begin_us: int | None = None
    for _ in range(_MOST_LOOKED_AT):
        if following is None or following.due_us > record.back_us:
            break
        if not knowledge.has_ended(known, following.slot_us):
            begin_us = following.slot_us if begin_us is None else begin_us
        elif begin_us is not None and len(ended) < _MOST_NAMED:
            ended.append(following.slot_us)
        following = timeline.next_after(following.slot_us)
    if begin_us is None and following is not None and following.due_us <= record.back_us:
        begin_us = following.slot_us  # all that were looked at have ended, the others perhaps not
    if begin_us is None:
        found.compared.gone.append(one)
    else:
        _go_on(found, one, record, from_us=begin_us, ended_us=tuple(ended))


def _go_on(
    found: Comparisons,
    one: suspectpoints.HeldPoint,
    record: messages.OccurrenceRecord,
    **changes: object,
) -> None:
    found.compared.due.append((one, msgspec.structs.replace(record, **changes)))


def _lost(known: Definition, slot_us: int, settled: Watermark, due_us: int) -> messages.Occurrence:
    """The point of a slot that is open, as it was when its chain had handed it over."""
    started = slot_us in settled.started_us
    point = points.DuePoint(
        schedule_id=known.id,
        timing_version=known.timing_version,
        kind=PointKind.RETRY if started else PointKind.PLANNED,
        due_us=due_us,
        slot_us=slot_us,
    )
    record = messages.OccurrenceRecord(
        attempt=1 if started else 0, first_try_us=due_us if started else 0
    )
    return messages.Occurrence(point=point, record=record)
