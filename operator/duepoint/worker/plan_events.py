"""News and dead letters of points that end, or wait, without an attempt. Pure."""

from __future__ import annotations

import msgspec

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import definition as definitions
from duepoint.schedules import points, policies
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint
from duepoint.worker import runlimits
from duepoint.worker.plan import NO_RECORD, TRIGGER_SCHEDULE, Attempt


def given_up(
    known: definitions.Definition,
    claim: messages.Claim,
    point: DuePoint,
    reason: Reason,
    message: str,
) -> RunEvent:
    """No slot ends without a trace, not even one that no worker survives."""
    event = slot_event(known, point.slot_us, RunState.MISSED, reason, claim.now_us)
    if point.kind in points.RUN_KINDS:
        record = claim.records.get(point.member, NO_RECORD)
        return msgspec.structs.replace(
            event, message=message, trigger=record.trigger, run_uid=record.run_uid
        )
    return msgspec.structs.replace(event, message=message, settled_us=point.slot_us)


def slot_event(
    known: definitions.Definition, slot_us: int, state: RunState, reason: str, now_us: int
) -> RunEvent:
    return RunEvent(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        generation=known.generation,
        slot_us=slot_us,
        trigger=TRIGGER_SCHEDULE,
        state=state,
        reason=reason,
        at_us=now_us,
    )


def opened(known: definitions.Definition, attempts: tuple[Attempt, ...], now_us: int) -> RunEvent:
    """The slots of a chain that moves on: no later slot's end speaks for them."""
    oldest, *others = attempts
    return msgspec.structs.replace(
        slot_event(known, oldest.slot_us, RunState.PENDING, "", now_us),
        trigger=oldest.trigger,
        due_us=oldest.due_us,
        more_us=tuple(attempt.slot_us for attempt in others),
    )


def missed(
    known: definitions.Definition, group: policies.Missed, first_us: int, now_us: int
) -> RunEvent:
    return msgspec.structs.replace(
        slot_event(known, group.newest_us, RunState.MISSED, group.reason, now_us),
        count=group.count,
        settled_us=group.newest_us,
        since_us=first_us,
    )


def out_of_runs(known: definitions.Definition, skipped: runlimits.Skipped, now_us: int) -> RunEvent:
    return msgspec.structs.replace(
        slot_event(known, skipped.newest_us, RunState.SKIPPED, Reason.MAX_RUNS, now_us),
        message="every run that spec.maxRuns allows has started or is being started",
        count=skipped.count,
        settled_us=skipped.newest_us,
        since_us=skipped.oldest_us,
    )


def completed(known: definitions.Definition, newest_us: int, now_us: int) -> RunEvent:
    return msgspec.structs.replace(
        slot_event(known, newest_us, RunState.MISSED, Reason.COMPLETED, now_us),
        count=0,
        settled_us=newest_us,
        completed=True,
    )


def stranger(member: bytes, score: float) -> messages.DeadLetter:
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
    claim: messages.Claim,
    point: DuePoint,
    known: definitions.Definition,
    reason: Reason,
    message: str,
) -> messages.DeadLetter:
    return messages.DeadLetter(
        member=point.member,
        entry={
            "namespace": known.namespace,
            "name": known.name,
            "uid": known.uid,
            "slot_us": str(point.slot_us),
            "kind": point.kind.name,
            **records.for_letter(claim.records.get(point.member, NO_RECORD)),
            "reason": reason,
            "message": message,
        },
    )
