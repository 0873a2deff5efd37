"""What becomes of a Schedule with a point that was due when its server went back. Pure.

Such a server holds a true state, but an older one: every slot before a chain was handed over, and
what came after is not known. So the Schedule is put again as after a loss of the whole index: its
chain goes on behind the watermark, its open slots get their points again, and what has ended is
gone. Only where the server knows more (the chain stands later, an occurrence is not in the status)
does that stay. A stream in our own Redis went back together with its slots: there the queue alone
is right.
"""

from __future__ import annotations

from dataclasses import dataclass

from duepoint.controller import plan
from duepoint.controller.jobs.jobwatch import JobWatch
from duepoint.controller.scheduleruns.runstates import ScheduleRunStates
from duepoint.controller.status.states import ScheduleStates
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions.occurrences import StoredOccurrence
from duepoint.delayqueue.repair.fallbacks import Overdue, PutAgain
from duepoint.kube import jobbuilder, jobs
from duepoint.runs.watermark import Watermark
from duepoint.schedules import points
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.points import PointKind

#: Slots above the watermark whose Jobs are looked for.
_MOST_LOOKED_AT = 2_000
_REGULAR = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endings:
    """What has become of slots, by all sources but the queue, which may have lost it."""

    states: ScheduleStates
    jobs: JobWatch
    runs: ScheduleRunStates

    def settled(self, definition: Definition, back_us: int) -> Watermark:
        """The slots that have ended; of a Schedule that is gone all that were due."""
        known = self.states.settled(definition.uid)
        if known is None:
            return Watermark(back_us)
        if not definition.rule.whole_seconds:
            return known
        through_us = self._through_jobs(definition, known.through_us)
        return Watermark(through_us, known.started_us, known.waiting_us)

    def _through_jobs(self, definition: Definition, through_us: int) -> int:
        """The last slot behind the watermark up to which every slot has its Job."""
        owner = jobs.JobOwner(definition.namespace, definition.name, definition.uid)
        timeline = plan.slots_of(definition)
        following = timeline.next_after(max(through_us, definition.not_before_us))
        for _ in range(_MOST_LOOKED_AT):
            if following is None:
                break
            if not self.jobs.has(owner, jobbuilder.name_of(definition.name, following.slot_us)):
                break
            through_us = following.slot_us
            following = timeline.next_after(through_us)
        return through_us


def put_again(
    one: Overdue, settled: Watermark, endings: Endings, *, goes_back: bool = False
) -> PutAgain | None:
    """What it becomes; None where the end of one of its slots is not known yet.

    Args:
        one: as the server holds it.
        settled: its slots that have ended.
        goes_back: whether what its target took is lost with the server, too.
    """
    definition = one.definition
    gone = []
    for slot in one.occurrences:
        ended: bool | None
        if slot.kind in points.RUN_KINDS:
            ended = endings.runs.has_ended(slot.record.run_uid, slot.slot_us)
        else:
            ended = not goes_back and _may_have_ended(slot, definition)
            ended = ended and settled.has_ended(slot.slot_us)
        if ended is None:
            return None
        if ended:
            gone.append(slot.member)
    due_us, lost = one.chain_due_us, []
    if due_us is not None and definition.state is State.ARMED and not goes_back:
        lost = _lost(one, settled, due_us)
        following_us = plan.chain_due_us(definition, settled.through_us)
        if definition.runs_left != 0:  # else the worker that claims it completes the Schedule
            due_us = None if following_us is None else max(due_us, following_us)
    started = 0 if definition.runs_left is None else endings.states.started(definition.uid)
    return PutAgain(overdue=one, due_us=due_us, gone=gone, lost=lost, started=started)


def _may_have_ended(slot: StoredOccurrence, definition: Definition) -> bool:
    """Not where an edit has ended it, or a replay has opened it again, as a worker knows."""
    is_regular = slot.kind in _REGULAR and not plan.is_superseded(slot, definition)
    return is_regular and not slot.record.replayed_us


def _lost(one: Overdue, settled: Watermark, due_us: int) -> list[messages.Occurrence]:
    """Open slots that the chain handed over after the state that the server holds."""
    timeline = plan.slots_of(one.definition)
    first_us = timeline.at_or_before(due_us) or 0
    stored_us = {slot.slot_us for slot in one.occurrences if slot.kind in _REGULAR}
    found = []
    for slot_us in settled.open_us:
        if slot_us >= first_us and slot_us not in stored_us:
            slot_due_us = timeline.due_slot(slot_us).due_us
            first_try_us = slot_due_us if slot_us in settled.started_us else 0
            lost = plan.reopened(one.definition, slot_us, slot_due_us, first_us=first_try_us)
            found.append(lost)
    return found
