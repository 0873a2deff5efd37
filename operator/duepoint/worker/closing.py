"""What the settlement says of points without an outcome: news, dead letters, closings. Pure.

Checks, slots that wait for other runs or were taken out of the queue. ``planning`` reports slots
that no attempt is made for; ``tried`` makes the closings of attempts with an outcome.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.runs import run
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint
from duepoint.targets import target as targets
from duepoint.worker.plan import TRIGGER_SCHEDULE, Attempt, Closing

#: A check that found something missing is repeated after this; the first one sooner, because what
#: answer may have been remembered from right before it was mended.
CHECK_AGAIN_US = 30_000_000
_CHECK_SOON_US = 3_000_000


def slot_event(
    known: definitions.Definition,
    slot_us: int,
    state: RunState,
    reason: str,
    now_us: int,
    *,
    trigger: str = TRIGGER_SCHEDULE,
    schedule_id: points.ScheduleId | None = None,
    **more: Any,  # noqa: ANN401 - fields of RunEvent
) -> RunEvent:
    """News of a slot: what all news of a Schedule have, and more fields of ``RunEvent``.

    Args:
        schedule_id: of the Schedule, where it is at hand.
    """
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=slot_us,
        trigger=trigger,
        state=state,
        reason=reason,
        at_us=now_us,
        owner=known.owner,
        schedule_id=known.id if schedule_id is None else schedule_id,
        **more,
    )


def origin(known: definitions.Definition) -> dict[str, str]:
    """What a dead letter says of its schedule; of a member's, its set too."""
    fields = {
        "namespace": known.namespace,
        "name": known.name,
        "uid": known.uid,
        "schedule_id": known.id.hex(),
    }
    if known.owner is not None:
        fields |= {"set": known.owner.name, "set_id": known.owner.text.decode()}
    return fields


# -- dead letters ----------------------------------------------------------------------------------


def unrecognised(member: bytes, score: float) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=member,
        entry={
            "reason": Reason.UNSUPPORTED,
            "message": "the member is of no known format",
            "member": member.hex(),
            "score": repr(score),
        },
    )


def undefined(point: DuePoint) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=point.member,
        entry={
            "schedule_id": point.schedule_id.hex(),
            "slot_us": str(point.slot_us),
            "kind": point.kind.name,
            "reason": Reason.UNSUPPORTED,
            "message": "the definition of its schedule cannot be read by this version",
        },
    )


def dead(
    point: DuePoint,
    known: definitions.Definition,
    record: messages.OccurrenceRecord,
    reason: Reason,
    message: str,
) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=point.member,
        entry={
            **origin(known),
            "slot_us": str(point.slot_us),
            "kind": point.kind.name,
            **records.for_letter(record),
            "reason": reason,
            "message": message,
        },
    )


def withdrawn(point: DuePoint, record: messages.OccurrenceRecord, now_us: int) -> RunEvent | None:
    """News of a claimed slot whose schedule is gone; None where no ScheduleRun waits for it.

    The ScheduleRun saw it in a worker's hand, and would wait for the longest attempt.
    """
    if not record.run_uid:
        return None
    return RunEvent(
        uid="",  # stood in the definition
        namespace="",
        name="",
        generation=0,
        slot_us=point.slot_us,
        trigger=record.trigger,
        state=RunState.PENDING,
        reason=Reason.DELETED,
        at_us=now_us,
        message="its Schedule was deleted before it ran",
        attempts=record.attempt + 1,
        run_uid=record.run_uid,
    )


# -- attempts without an outcome -----------------------------------------------------------------


def attempt_event(
    attempt: Attempt,
    state: RunState,
    reason: str,
    message: str,
    now_us: int,
    **more: Any,  # noqa: ANN401 - fields of RunEvent
) -> RunEvent:
    """News of the slot of an attempt."""
    return slot_event(
        attempt.definition,
        attempt.slot_us,
        state,
        reason,
        now_us,
        trigger=attempt.trigger,
        message=message,
        run_uid=attempt.run_uid,
        schedule_id=attempt.point.schedule_id,
        **more,
    )


def checked(attempt: Attempt, found: targets.Trouble | None, now_us: int) -> Closing:
    """How a check ends: it is made again for as long as what it found may be mended."""
    event = slot_event(
        attempt.definition,
        0,
        RunState.CHECKED,
        "" if found is None else found.reason,
        now_us,
        trigger=attempt.trigger,
        message="" if found is None else found.message,
    )
    if found is None or found.final:
        return Closing(finished=(attempt.point.member,), events=(event,))
    wait_us = _CHECK_SOON_US if attempt.number == 1 else CHECK_AGAIN_US
    again = messages.Occurrence(
        point=dataclasses.replace(attempt.point, due_us=now_us + wait_us),
        record=messages.OccurrenceRecord(
            attempt=attempt.number,
            trigger=attempt.trigger,
            last_error=found.reason,
            last_cause=run.cut(found.message, run.CAUSE_LIMIT),
        ),
        source=attempt.point.member,
    )
    return Closing(occurrences=(again,), events=(event,))


def running(attempt: Attempt, started_us: int, now_us: int) -> Closing:
    """The attempt goes on; its slot has started, and has not ended."""
    event = attempt_event(
        attempt,
        RunState.RUNNING,
        Reason.RUNNING,
        "the request is open",
        now_us,
        started_us=started_us,
        attempts=attempt.number - 1,
    )
    return Closing(events=(event,))


def still_open(
    attempt: Attempt, reason: Reason, message: str, *, attempts: int, now_us: int
) -> Closing | None:
    """News of a slot that has not ended; None where no ScheduleRun reports it."""
    if not attempt.run_uid:
        return None
    event = attempt_event(attempt, RunState.PENDING, reason, message, now_us, attempts=attempts)
    return Closing(events=(event,))
