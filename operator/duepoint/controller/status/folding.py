"""The fold of run events into the state of a Schedule.

Only the queue ends a regular slot. A watched Job may be one whose creation was never answered, and
its name must not become free while a worker is still requesting it. No I/O, no clock.
"""

from __future__ import annotations

from msgspec.structs import replace

from duepoint.controller import statusconditions
from duepoint.controller.status.state import ScheduleState
from duepoint.runs import summary as summaries
from duepoint.runs import watermark
from duepoint.runs.run import REGULAR, RunEvent, RunState
from duepoint.runs.watermark import OpenSlot
from duepoint.schedules.conditions import Reason

#: A delivery that is published as active but is not in the queue counts as ended unobserved once
#: its slot is older than this.
_UNOBSERVED_AFTER_US = 3_600_000_000


# -- events ------------------------------------------------------------------------------------


def fold(state: ScheduleState, event: RunEvent, *, by_queue: bool, is_lost: bool = False) -> None:
    """Count an event of a run."""
    runs = state.runs()
    if is_lost and event.is_regular and state.began.has_ended(event.slot_us):
        return  # another worker took over and ended the slot, and an earlier leader counted that
    is_over = not event.job_name and event.trigger in REGULAR
    is_over = is_over and not state.is_open(event.slot_us) and event.slot_us <= runs.settled_us
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
    if not state.has_run(event):
        state.summary = replace(runs, replacing={**runs.replacing, event.job_name: event.message})


def put_off(state: ScheduleState, event: RunEvent) -> None:
    """Record that the event's slots were put off, and are open.

    A chain hands its slots over in order, so the watermark may rise to the newest of them.
    """
    _open(state, event)
    state.summary = summaries.put_off(state.runs(), event)
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


def is_refused_for_good(state: ScheduleState, event: RunEvent, before: summaries.Summary) -> bool:
    """Whether this event, folded already, is one refusal too many for the Job template."""
    if event.generation != state.generation or event.trigger not in REGULAR:
        return False
    if event.state is not RunState.MISSED:
        state.refusals = 0
        return False
    if event.reason != Reason.INVALID_JOB_TEMPLATE or state.runs().counts == before.counts:
        return False
    state.refusals += 1
    return state.refusals == statusconditions.REFUSALS


# -- what the queue shows ----------------------------------------------------------------------


def lost_deliveries(state: ScheduleState, now_us: int) -> list[int]:
    """Return slots whose deliveries the status shows as active but the queue does not have."""
    return [
        slot_us
        for slot_us in _running_deliveries(state)
        if not state.is_open(slot_us) and slot_us < now_us - _UNOBSERVED_AFTER_US
    ]


def end_refused(state: ScheduleState, now_us: int) -> None:
    """End the active deliveries of a refused Schedule, which has left the queue."""
    if state.holds_nothing and (state.summary is not None or state.may_show_running):
        for slot_us in _running_deliveries(state):
            message = "the spec was refused after an edit, which took the delivery out of the queue"
            end_unobserved(state, slot_us, now_us, message)


def _running_deliveries(state: ScheduleState) -> list[int]:
    """Return the regular slots whose deliveries are active."""
    running = state.runs().running.items()
    return [slot_us for (slot_us, wanted_by), job in running if not (job or wanted_by)]


def end_unobserved(state: ScheduleState, slot_us: int, now_us: int, message: str) -> None:
    """End the delivery of a slot that no event has ended."""
    ended = RunEvent(
        uid=state.uid,
        namespace=state.namespace,
        name=state.name,
        generation=0,
        slot_us=slot_us,
        trigger="Schedule",
        state=RunState.FAILED,
        reason=Reason.DELETED,
        message=message,
        at_us=now_us,
        started_us=min(slot_us, now_us),
        finished_us=now_us,
    )
    state.summary = summaries.fold(state.runs(), ended)
