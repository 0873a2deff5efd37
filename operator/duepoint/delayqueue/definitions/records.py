"""The small records beside the points: the state of an occurrence, and the limits of a due.

An occurrence's state is stored in ``occrec`` under its member, as a MessagePack array that begins
with a format number: [1, attempt, first try in us, trigger, run uid, last error class], and where
a ScheduleRun overrides something [..., concurrency policy, payload, its seal], of a replayed
letter [..., time of the replay in us], of a held point [..., up to which instant, first slot,
settled up to, slots that have ended], and of a retry [..., the last error in words]. Fields that a
later version appends are ignored; another format number, or bytes that are no such array, raise
UnknownFormat. No record at all is that of a first attempt. Pure.
"""

from __future__ import annotations

import msgspec

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.runs import run as runs
from duepoint.schedules import points

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


_decoder = msgspec.msgpack.Decoder(_Record)


def pack(record: messages.OccurrenceRecord) -> bytes:
    common = (
        *(_FORMAT, record.attempt, record.first_try_us),
        *(record.trigger, record.run_uid, record.last_error),
    )
    overrides = (record.concurrency, record.payload, record.seal)
    held = (record.back_us, record.from_us, record.settled_us, record.ended_us)
    if record.last_cause:
        cause = runs.cut(record.last_cause, runs.CAUSE_LIMIT)
        return msgspec.msgpack.encode((*common, *overrides, record.replayed_us, *held, cause))
    if record.back_us:
        return msgspec.msgpack.encode((*common, *overrides, record.replayed_us, *held))
    if record.replayed_us:
        return msgspec.msgpack.encode((*common, *overrides, record.replayed_us))
    return msgspec.msgpack.encode(common + overrides if any(overrides) else common)


def for_letter(record: messages.OccurrenceRecord) -> dict[str, str]:
    """What a replay could find nowhere else: whose run it is, and what that wants otherwise."""
    told = {"trigger": record.trigger, "run_uid": record.run_uid}
    if record.payload or record.concurrency:
        told["record"] = pack(record).hex()
    return told


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
