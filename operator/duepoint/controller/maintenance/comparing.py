"""What becomes of points that waited on a server that went back, by what is known otherwise.

The state of such a server is a true one, but an older: every slot before a chain was handed over,
and nothing is known of what came after. What is known of that stands in the statuses, in what this
process remembers, and in the Jobs. A slot that has ended by any of these is gone; the rest is due.
Slots that are open although their chain stood before them lost their own point with the server, and
get one again. A stream in our own Redis went back together with its slots: there the queue alone
is right. No I/O: what is known is asked of ``Endings``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from duepoint.controller import plan
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.scheduleruns.runstates import ScheduleRunStates
from duepoint.controller.status.states import ScheduleStates
from duepoint.delayqueue import messages
from duepoint.delayqueue.repair import suspectpoints
from duepoint.kube import jobbuilder, jobs
from duepoint.runs.run import RunEvent, RunState
from duepoint.runs.watermark import NOTHING, Watermark
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition
from duepoint.schedules.points import PointKind

#: Slots of one held point that are looked at one by one, and those that its record names.
_MOST_LOOKED_AT = 2_000
_MOST_NAMED = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """What has become of slots, by all sources but the queue, which may have lost it.

    By the statuses, by what is remembered of runs, by the Jobs and by the ScheduleRuns.
    """

    states: ScheduleStates
    jobs: JobWatch
    runs: ScheduleRunStates

    def has_ended(self, definition: Definition, slot_us: int) -> bool:
        """Whether a regular slot has ended though its status may not say so yet."""
        of_job = definition.rule.whole_seconds
        if self.states.knows_end(definition.uid, slot_us, of_job=of_job):
            return True
        # A Job's slot ends with its creation, also where its answer was lost.
        owner = jobs.JobOwner(definition.namespace, definition.name, definition.uid)
        return of_job and self.jobs.has(owner, jobbuilder.name_of(definition.name, slot_us))


@dataclass(slots=True, kw_only=True)
class Comparisons:
    """What a part of the points that wait has led to.

    Attributes:
        compared: for the queue.
        events: regular slots that have ended, and of which no point is left then. No worker says
            so of what has ended otherwise: a status may list it as open, and a watermark that
            stayed behind would run it again once its Job is deleted and the index is lost.
        waiting: how many stay as they are, for now.
    """

    compared: suspectpoints.PointComparison = field(default_factory=suspectpoints.PointComparison)
    events: list[RunEvent] = field(default_factory=list)
    waiting: int = 0

    def end(
        self, definition: Definition, slot_us: int, now_us: int, *, is_newest: bool, is_last: bool
    ) -> None:
        """A slot has ended; ``is_newest``: all before it have, too, or have a point."""
        self.events.append(
            RunEvent(
                uid=definition.uid,
                namespace=definition.namespace,
                name=definition.name,
                generation=definition.generation,
                slot_us=slot_us,
                trigger="Schedule",
                state=RunState.MISSED,
                reason=Reason.COMPLETED,
                at_us=now_us,
                count=0,
                settled_us=slot_us if is_newest else 0,
                completed=is_last,
            )
        )


def compare(
    part: Sequence[suspectpoints.HeldPoint],
    endings: Endings,
    *,
    back_us: int,
    now_us: int,
    held: Collection[bytes] = (),
    goes_back: Callable[[Definition], bool] = lambda _known: False,
) -> Comparisons:
    """What the comparison says of these points.

    Args:
        part: points of one shard.
        back_us: up to which instant the shard is suspect; 0 = it is not any more.
        now_us: the time of what is found.
        held: ids of schedules of which a held point is in the queue.
        goes_back: whether what the target of a schedule took is lost with the server, too.
    """
    found = Comparisons()
    for one in part:
        point, definition = one.point, one.definition
        if definition is None:
            found.compared.gone.append(one)
        elif one.record is None or plan.is_superseded(point, definition):
            found.compared.due.append((one, None))  # a worker knows what to do with it
        elif (settled := endings.states.settled(definition.uid)) is None:
            found.waiting += 1  # deleted, and to be removed; or not seen yet
        elif point.kind is PointKind.CHAIN and definition.id in held:
            found.waiting += 1  # a chain with counted runs goes on behind the slots held with it
        elif point.kind is PointKind.CHAIN:
            found.compared.chains.append((one, _chain_due_us(definition, back_us)))
        elif point.kind is not PointKind.HELD:
            _compare_slot(
                found, one, definition, endings, now_us=now_us, goes_back=goes_back(definition)
            )
        else:
            if definition.runs_left is not None:
                found.compared.started.append(
                    (definition.id, endings.states.started(definition.uid))
                )
            if goes_back(definition):
                record = msgspec.structs.replace(one.record, settled_us=settled.through_us)
                found.compared.due.append((one, record))
            else:
                _compare_held(found, one, definition, settled, endings, now_us=now_us)
    return found


def _chain_due_us(definition: Definition, back_us: int) -> int:
    """The first due after the suspect instant.

    Without a slot it is due at once: the worker that claims it completes the schedule.
    """
    timeline = plan.slots_of(definition)
    newest_us = timeline.newest_due(back_us)
    following = timeline.next_after(back_us if newest_us is None else newest_us)
    return back_us if following is None else following.due_us


def _compare_slot(
    found: Comparisons,
    one: suspectpoints.HeldPoint,
    definition: Definition,
    endings: Endings,
    *,
    now_us: int,
    goes_back: bool,
) -> None:
    slot_us, record = one.point.slot_us, one.record or messages.OccurrenceRecord()
    is_regular = one.point.kind not in points.RUN_KINDS
    ended: bool | None
    if is_regular:
        settled = endings.states.settled(definition.uid) or NOTHING
        ended = settled.has_ended(slot_us) or endings.has_ended(definition, slot_us)
        if not record.replayed_us:  # what was replayed is open again since the status was written
            ended = ended or endings.states.is_published_as_ended(definition.uid, slot_us)
        ended = ended and not goes_back
    else:
        ended = endings.runs.has_ended(record.run_uid, slot_us)
    if ended is None:
        found.waiting += 1
    elif not ended:
        found.compared.due.append((one, None))
    else:
        found.compared.gone.append(one)
        if is_regular:
            is_last = plan.slots_of(definition).next_after(slot_us) is None
            found.end(definition, slot_us, now_us, is_newest=is_last, is_last=is_last)


def _compare_held(
    found: Comparisons,
    one: suspectpoints.HeldPoint,
    definition: Definition,
    settled: Watermark,
    endings: Endings,
    *,
    now_us: int,
) -> None:
    record = one.record or messages.OccurrenceRecord()
    first_us = record.from_us or one.point.slot_us
    timeline = plan.slots_of(definition)
    for slot_us in settled.open_us:
        if slot_us < first_us:
            continue
        # A status is older than what is known: a Job that is there has ended its slot.
        if endings.has_ended(definition, slot_us):
            found.end(definition, slot_us, now_us, is_newest=False, is_last=False)
        else:
            due_us = timeline.due_slot(slot_us).due_us
            started_us = due_us if slot_us in settled.started_us else 0
            lost = plan.reopened(definition, slot_us, due_us, first_us=started_us)
            found.compared.added.append((one, lost))
    following = timeline.next_after(max(settled.through_us, first_us - 1))
    ended: list[int] = []
    begin_us: int | None = None
    for _ in range(_MOST_LOOKED_AT):
        if following is None or following.due_us > record.back_us:
            break
        if not endings.has_ended(definition, following.slot_us):
            begin_us = following.slot_us if begin_us is None else begin_us
        elif begin_us is not None and len(ended) < _MOST_NAMED:
            ended.append(following.slot_us)
        following = timeline.next_after(following.slot_us)
    if begin_us is None and following is not None and following.due_us <= record.back_us:
        begin_us = following.slot_us  # all that were looked at have ended, the others perhaps not
    newest_us = timeline.newest_due(record.back_us)
    if newest_us is not None and newest_us >= first_us and endings.has_ended(definition, newest_us):
        is_last = timeline.next_after(newest_us) is None
        found.end(definition, newest_us, now_us, is_newest=True, is_last=is_last)
    if begin_us is None:
        found.compared.gone.append(one)
    else:
        record = msgspec.structs.replace(record, from_us=begin_us, ended_us=tuple(ended))
        found.compared.due.append((one, record))
