"""Packs and unpacks the state of an occurrence; checks that a due can be stored. Pure.

An occurrence's state (``messages.OccurrenceRecord``) is stored in ``occrec`` under its member, as a
MessagePack array of its fields, which begins with a format number. Fields at its end with default
values are left out, except the first six. Fields that a later version appends are ignored; another
format number, or bytes that are not such an array, raise UnknownFormat. A missing record means a
first attempt.
"""

from __future__ import annotations

import msgspec

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.runs import run as runs
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason


class UnknownFormat(ValueError):
    """The bytes are not a record that this version can read."""


_decoder = msgspec.msgpack.Decoder(messages.OccurrenceRecord)
#: Fields that are always written: up to the error class of the last attempt.
_LEAST = 6


def pack(record: messages.OccurrenceRecord) -> bytes:
    *values, cause, unanswered_us = msgspec.structs.astuple(record)
    values += (runs.cut(cause, runs.CAUSE_LIMIT), unanswered_us)
    while len(values) > _LEAST and not values[-1]:
        values.pop()
    return msgspec.msgpack.encode(values)


def for_letter(record: messages.OccurrenceRecord) -> dict[str, str]:
    """Return the fields that a replay finds nowhere else: the ScheduleRun and its overrides."""
    fields = {"trigger": record.trigger, "run_uid": record.run_uid}
    if record.payload or record.concurrency:
        fields["record"] = pack(record).hex()
    return fields


def unpack(data: bytes) -> messages.OccurrenceRecord:
    """Return the record; raises UnknownFormat if the bytes are not one."""
    if not data:
        return messages.OccurrenceRecord()
    try:
        found = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnknownFormat(f"occurrence record of {len(data)} bytes cannot be read") from error
    if found.format != messages.RECORD_FORMAT:
        raise UnknownFormat(f"occurrence record of format {found.format}")
    return found


def unpack_or_first(data: bytes) -> messages.OccurrenceRecord:
    """Return the record, or that of a first attempt if it is unreadable."""
    try:
        return unpack(data)
    except UnknownFormat:
        return messages.OccurrenceRecord()


def signed_content(
    record: messages.OccurrenceRecord, uid: str, slot_us: int, payload: bytes
) -> bytes:
    """Return the content that an override's signature covers: valid for this run alone."""
    return msgspec.msgpack.encode(("override", uid, record.run_uid, slot_us, payload))


def is_due(due_us: int) -> bool:
    """Whether a score can be a due; larger ones mark claims."""
    return 0 <= due_us < points.DUE_LIMIT_US


def checked_due(due_us: int) -> int:
    """Return the due; raises Bug if it cannot be stored."""
    if not is_due(due_us):
        raise errors.Bug(f"a due of {due_us} us cannot be stored: it is outside [0, 2^52)")
    return due_us


#: The ``target`` in the origin of a Job's retry.
JOB_TARGET = "Job"


def surplus(
    newest: messages.Occurrence, member: bytes, packed: bytes, given_up_us: int
) -> tuple[dict[str, str], bytes]:
    """Return letter and outcome of a retry that is one too many for its schedule.

    Args:
        newest: the retry that there is no room for; its error is the reason, which all share.
        packed: the record of the retry.
    """
    known, origin, slot_us = unpack_or_first(packed), newest.origin, points.slot_of(member)
    cause = newest.record.last_cause or newest.record.last_error
    message = f"more than {newest.most_open} slots of this schedule were waiting for a retry"
    message += f"; the last try: {cause}" if cause else ""
    entry = {
        "slot_us": str(slot_us),
        "given_up_us": str(given_up_us),
        **origin,
        "kind": newest.point.kind.name,
        "reason": newest.record.last_error,
        "message": message,
    }
    # A slot that never started is missed; a Job's starts when the Job exists.
    missed = origin.get("target") == JOB_TARGET or not known.first_try_us
    event = runs.RunEvent(
        uid=origin.get("uid", ""),
        namespace=origin.get("namespace", ""),
        name=origin.get("name", ""),
        generation=int(origin.get("generation") or 0),
        slot_us=slot_us,
        trigger=known.trigger,
        state=runs.RunState.MISSED if missed else runs.RunState.FAILED,
        reason=Reason.CATCH_UP_POLICY if missed else known.last_error,
        message=message,
        at_us=given_up_us,
        started_us=known.first_try_us,
        finished_us=0 if missed else given_up_us,
        attempts=known.attempt,
        settled_us=slot_us if known.trigger in runs.REGULAR else 0,
        run_uid=known.run_uid,
        owner=_owner(origin.get("set_id", "")),
    )
    return entry, runs.pack([event])


def _owner(text: str) -> points.SetIdentity | None:
    try:
        return points.parse_set(text.encode()) if text else None
    except ValueError:
        return None
