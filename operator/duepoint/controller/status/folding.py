"""What changes the runs and open slots in a Schedule's state: events, and what the queue shows.

Only the queue ends a regular slot. A watched Job may be one whose creation was never answered, and
its name must not become free while a worker is still requesting it.
"""

from __future__ import annotations

from msgspec.structs import replace

from duepoint import errors
from duepoint.controller import plan
from duepoint.controller.status.state import ScheduleState
from duepoint.controller.term import TermContext
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.kube import jobs
from duepoint.runs import summary as summaries
from duepoint.runs import watermark
from duepoint.runs.run import ENDED, REGULAR, RunEvent, RunState
from duepoint.runs.watermark import OpenSlot
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import Definition, State
from duepoint.schedules.points import PointKind

_KINDS = frozenset({PointKind.RETRY, PointKind.PLANNED, PointKind.QUEUED})
#: A delivery that is published as active but is not in the queue counts as ended unobserved once
#: its slot is older than this.
_UNOBSERVED_AFTER_US = 3_600_000_000


# -- events ------------------------------------------------------------------------------------


def fold(state: ScheduleState, event: RunEvent, *, by_queue: bool) -> None:
    """Count an event of a run."""
    runs = state.runs()
    has_ended = event.is_regular and state.settled().has_ended(event.slot_us)
    if not by_queue and has_ended and not state.is_running(event):
        return  # of a worker that had lost its claim: another one took over and ended the slot
    is_over = has_ended and not event.job_name
    if by_queue and event.trigger in REGULAR:
        if event.is_open:
            _open(state, event)
        else:
            state.open = watermark.without(state.open, event.slot_us, since_us=event.since_us)
    state.summary = summaries.fold(
        runs, event, is_over=is_over, timing_generation=state.timing_generation
    )
    state.settle(event.settled_us, state.open)


def announce(state: ScheduleState, event: RunEvent) -> None:
    """Record that a worker is about to delete the Job of this run in favour of a newer slot."""
    runs = state.runs()
    if summaries.state_of(runs, event) not in ENDED:
        state.summary = replace(runs, replacing={**runs.replacing, event.job_name: event.message})


def put_off(state: ScheduleState, event: RunEvent) -> None:
    """Record that the event's slots were put off, and are open.

    A chain hands its slots over in order, so the watermark may rise to the newest of them.
    """
    _open(state, event)
    state.summary = summaries.fold(state.runs(), event)
    state.settle(max((event.slot_us, *event.more_us)), state.open)


def _open(state: ScheduleState, event: RunEvent) -> None:
    """Open the event's slots, except those that have ended since."""
    runs = state.runs()
    state.open = watermark.joined(
        state.open,
        [
            OpenSlot(
                slot_us=slot_us,
                due_us=max(event.due_us, slot_us),  # a slot is never due before its own time
                reason=event.reason,
                message=event.message,
                started=event.state is RunState.RUNNING,
            )
            for slot_us in (event.slot_us, *event.more_us)
            if state.is_open(slot_us)
            or not (slot_us <= runs.settled_us or summaries.has_ended(runs, slot_us))
        ],
    )


# -- what the queue shows ----------------------------------------------------------------------


async def read_slots(term: TermContext, state: ScheduleState, stored: Definition) -> bool:
    """Read from the queue which slots of a Schedule with this definition have ended or are open.

    Count what has ended before the watermark passes it: a lost queue is filled from there. Return
    False if that cannot be done yet.

    A chain points to the first slot that was never handed over, so every older slot has ended or is
    open, and an open one has an occurrence of its own. We read the chain before the occurrences: a
    slot that is handed over in between is then above the watermark. Raises QueueUnavailable.
    """
    queue, now_us = term.queue, term.clock.now_us()
    shards = frozenset(sharding.homes(stored.id, queue.layouts.known()))
    try:
        dues = [await queue.definitions.chain_due(shard, stored) for shard in shards]
        found = [
            (point, record)
            for shard in shards
            async for point, record in queue.occurrences.all_occurrences(shard, of=stored.id)
            if point.kind in _KINDS
        ]
    except queue_errors.LayoutChanged as change:
        raise errors.QueueUnavailable(f"the index was resharded meanwhile: {change}") from change
    published = state.last().watermark
    if any(published.has_ended(at.slot_us) and not record.replayed_us for at, record in found):
        # If the server went back, these slots have ended and must not be reopened.
        doubts = await queue.fallbacks.doubts(every=True)
        if not shards.isdisjoint(doubt.shard for doubt in doubts):
            return True
    handed_us = _handed_us(stored, min(filter(None, dues), default=None), now_us)
    is_chain = handed_us > stored.not_before_us and stored.state is not State.SUSPENDED
    gone = {slot.slot_us for slot in state.open} - {point.slot_us for point, _ in found}
    if gone or (is_chain and handed_us > state.runs().settled_us):
        if not term.services.outcomes.has_begun.is_set():
            return False
        await term.services.outcomes.catch_up(tuple(shards))
    runs = state.runs()
    # A slot that is not in the queue has ended if the chain is beyond it.
    still_open = watermark.joined(
        tuple(slot for slot in state.open if slot.slot_us > handed_us),
        [
            _open_slot(point, record, stored)
            for point, record in found
            if state.is_open(point.slot_us) or not summaries.has_ended(runs, point.slot_us)
        ],
    )
    state.settle(handed_us if is_chain else 0, still_open)
    if stored.state is State.COMPLETED and not runs.completed:
        state.summary = replace(state.runs(), completed=True)
    return True


def _handed_us(known: Definition, due_us: int | None, now_us: int) -> int:
    """Return the newest slot that was handed over; 0 = none, or unknown."""
    if due_us is None and known.state is State.ARMED:
        return 0  # the chain is about to be stored again
    if due_us is not None and due_us >= points.DUE_LIMIT_US:
        return 0  # a worker has claimed the chain
    try:
        return plan.slots_of(known).newest_due(now_us if due_us is None else due_us - 1) or 0
    except errors.InvalidExpression:
        return 0  # stored by another version


def _open_slot(
    point: points.DuePoint, record: messages.OccurrenceRecord, known: Definition
) -> OpenSlot:
    is_of_other_timing = point.timing_version != known.timing_version
    return OpenSlot(
        slot_us=point.slot_us,
        due_us=record.first_try_us or point.slot_us,
        reason=record.last_error,
        message=record.last_cause,
        # The slot of a Job starts and ends when the Job is created.
        started=record.first_try_us > 0 and not known.rule.whole_seconds,
        superseded=point.kind in points.TIMED_KINDS and is_of_other_timing,  # an edit has ended it
    )


def lost_deliveries(state: ScheduleState, now_us: int) -> list[int]:
    """Return slots whose deliveries the status shows as active but the queue does not have."""
    # A refused Schedule has left the queue, with its deliveries.
    before_us = now_us + 1 if state.holds_nothing else now_us - _UNOBSERVED_AFTER_US
    return [
        slot_us
        for (slot_us, wanted_by), job in state.runs().running.items()
        if not (job or wanted_by or state.is_open(slot_us)) and slot_us < before_us
    ]


def end_unobserved(state: ScheduleState, slot_us: int, now_us: int) -> None:
    """End the delivery of a slot that no event has ended."""
    why = "the queue does not hold the delivery any more, and its end was not observed"
    started_us = min(slot_us, now_us)
    ended = of_run(state.owner, slot_us, now_us, message=why, started_us=started_us)
    state.summary = summaries.fold(state.runs(), ended)


def of_run(
    owner: jobs.JobOwner,
    slot_us: int,
    at_us: int,
    *,
    state: RunState = RunState.FAILED,
    reason: str = Reason.DELETED,
    message: str = "",
    trigger: str = "Schedule",
    started_us: int = 0,
    settled_us: int = 0,
    job_name: str = "",
    run_uid: str = "",
) -> RunEvent:
    """Return an event of a run that no worker and no Job reports: mostly, it failed unseen."""
    return RunEvent(
        uid=owner.uid,
        namespace=owner.namespace,
        name=owner.name,
        generation=0,
        slot_us=slot_us,
        trigger=trigger,
        state=state,
        reason=reason,
        message=message,
        at_us=at_us,
        started_us=started_us,
        finished_us=0 if state is RunState.RUNNING else at_us,
        settled_us=settled_us,
        job_name=job_name,
        run_uid=run_uid,
    )
