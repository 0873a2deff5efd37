"""The small records beside the points: the state of an occurrence, and the limits of a due.

An occurrence's state is stored in ``occrec`` under its member, as a MessagePack array that begins
with a format number: [1, attempt, first try in us, trigger, run uid, last error class], and where
a ScheduleRun overrides something [..., concurrency policy, payload, its seal], of a replayed
letter [..., time of the replay in us], of a held point [..., up to which instant, first slot,
settled up to, slots that have ended], of a retry [..., the last error in words], and of a Job whose
creation got no answer [..., when that was given up]. Fields that a later version appends are
ignored; another format number, or bytes that are no such array, raise UnknownFormat. No record at
all is that of a first attempt. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.runs import run as runs
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason

_FORMAT = 1


class UnknownFormat(ValueError):
    """The bytes are not a record that this version can read."""


class _Record(msgspec.Struct, frozen=True, array_like=True):
    number: int
    attempt: int
    first_try_us: int
    trigger: str
    run_uid: str
    last_error: str
    concurrency: str = ""
    payload: bytes = b""
    seal: str = ""
    replayed_us: int = 0
    back_us: int = 0
    from_us: int = 0
    settled_us: int = 0
    ended_us: tuple[int, ...] = ()
    last_cause: str = ""
    unanswered_us: int = 0


_decoder = msgspec.msgpack.Decoder(_Record)


def pack(record: messages.OccurrenceRecord) -> bytes:
    common = (
        *(_FORMAT, record.attempt, record.first_try_us),
        *(record.trigger, record.run_uid, record.last_error),
    )
    overrides = (record.concurrency, record.payload, record.seal)
    held = (record.back_us, record.from_us, record.settled_us, record.ended_us)
    if record.unanswered_us or record.last_cause:
        cause = runs.cut(record.last_cause, runs.CAUSE_LIMIT)
        late = (cause, record.unanswered_us) if record.unanswered_us else (cause,)
        return msgspec.msgpack.encode((*common, *overrides, record.replayed_us, *held, *late))
    if record.back_us:
        return msgspec.msgpack.encode((*common, *overrides, record.replayed_us, *held))
    if record.replayed_us:
        return msgspec.msgpack.encode((*common, *overrides, record.replayed_us))
    return msgspec.msgpack.encode(common + overrides if any(overrides) else common)


def for_letter(record: messages.OccurrenceRecord) -> dict[str, str]:
    """What a replay could find nowhere else: whose run it is, and what that wants otherwise."""
    fields = {"trigger": record.trigger, "run_uid": record.run_uid}
    if record.payload or record.concurrency:
        fields["record"] = pack(record).hex()
    return fields


def unpack(data: bytes) -> messages.OccurrenceRecord:
    """The record; raises UnknownFormat on bytes that are none."""
    if not data:
        return messages.OccurrenceRecord()
    try:
        found = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnknownFormat(f"occurrence record of {len(data)} bytes cannot be read") from error
    if found.number != _FORMAT:
        raise UnknownFormat(f"occurrence record of format {found.number}")
    return messages.OccurrenceRecord(
        attempt=found.attempt,
        first_try_us=found.first_try_us,
        trigger=found.trigger,
        run_uid=found.run_uid,
        last_error=found.last_error,
        concurrency=found.concurrency,
        payload=found.payload,
        seal=found.seal,
        replayed_us=found.replayed_us,
        back_us=found.back_us,
        from_us=found.from_us,
        settled_us=found.settled_us,
        ended_us=found.ended_us,
        last_cause=found.last_cause,
        unanswered_us=found.unanswered_us,
    )


def unpack_or_first(data: bytes) -> messages.OccurrenceRecord:
    """The record, or that of a first attempt where it cannot be read."""
    try:
        return unpack(data)
    except UnknownFormat:
        return messages.OccurrenceRecord()


def sealed(record: messages.OccurrenceRecord, uid: str, slot_us: int, payload: bytes) -> bytes:
    """What the seal of an override is a keyed hash of: it counts for this run of this schedule."""
    return msgspec.msgpack.encode(("override", uid, record.run_uid, slot_us, payload))


def is_due(due_us: int) -> bool:
    """Whether a score can stand for a due; those beyond stand for claims."""
    return 0 <= due_us < points.DUE_LIMIT_US


def checked_due(due_us: int) -> int:
    """The due itself, or what stands in its place; raises Bug where it cannot be stored."""
    if not is_due(due_us) and due_us != points.HELD_US:
        raise errors.Bug(f"a due of {due_us} us cannot be stored: it is outside [0, 2^52)")
    return due_us


# -- retries that exceeded their schedule's limit ------------------------------------------------
# The script that buries such a retry writes the dead letter and the outcome in one step, from
# fields that are made before (``buried_entry``); the reader of ``runs`` turns them back into a run
# event (``buried_event``). So nothing is lost with the reply of the script.

#: What the origin of a Job's retry says under ``target``.
JOB_TARGET = "Job"
#: Triggers of slots that belong to the schedule's own sequence.
_REGULAR = frozenset({"Schedule", "CatchUp"})


def buried_entry(newest: messages.Occurrence) -> dict[str, str]:
    """What both say, beside the buried member, its slot and record: the newest retry's origin."""
    return {
        **newest.origin,
        "kind": newest.point.kind.name,
        "reason": newest.record.last_error,
        "message": f"more than {newest.most_open} slots of this schedule were being tried again"
        + _because(newest.record),
    }


def _because(record: messages.OccurrenceRecord) -> str:
    """Why they were: what the newest of them met, which is what the others meet."""
    cause = record.last_cause or record.last_error
    return f"; the last try: {cause}" if cause else ""


def buried_event(fields: Mapping[str, str], member: bytes, record: bytes) -> bytes:
    """The packed run event of a buried retry; empty where the member is none of ours."""
    point = points.parse_member(member, 0)
    if point is None:
        return b""
    known = unpack_or_first(record)
    given_up_us = int(fields.get("given_up_us") or 0)
    # What never started is a missed slot; a Job starts with its Job.
    missed = fields.get("target") == JOB_TARGET or not known.first_try_us
    event = runs.RunEvent(
        uid=fields.get("uid", ""),
        namespace=fields.get("namespace", ""),
        name=fields.get("name", ""),
        generation=int(fields.get("generation") or 0),
        slot_us=point.slot_us,
        trigger=known.trigger,
        state=runs.RunState.MISSED if missed else runs.RunState.FAILED,
        reason=Reason.CATCH_UP_LIMIT if missed else known.last_error,
        message=fields.get("message", ""),
        at_us=given_up_us,
        started_us=known.first_try_us,
        finished_us=0 if missed else given_up_us,
        attempts=known.attempt,
        settled_us=point.slot_us if known.trigger in _REGULAR else 0,
        run_uid=known.run_uid,
        again=known.first_try_us > 0,
    )
    return runs.pack([event])
