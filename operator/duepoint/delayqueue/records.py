"""The small records beside the points: the state of an occurrence, and the limits of a due.

An occurrence's state is stored in ``occrec`` under its member, as a MessagePack array that begins
with a format number: [1, attempt, first try in us, trigger, run uid, last error class]. A record
that cannot be read counts as that of a first attempt: the slot then runs once more rather than
never. Pure.
"""

from __future__ import annotations

import msgspec

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.schedules import points

_FORMAT = 1
_decoder = msgspec.msgpack.Decoder(tuple[int, int, int, str, str, str])


def pack(record: messages.OccurrenceRecord) -> bytes:
    return msgspec.msgpack.encode(
        (
            _FORMAT,
            record.attempt,
            record.first_try_us,
            record.trigger,
            record.run_uid,
            record.last_error,
        )
    )


def unpack(data: bytes) -> messages.OccurrenceRecord:
    try:
        number, attempt, first_try_us, trigger, run_uid, last_error = _decoder.decode(data)
    except msgspec.MsgspecError:
        return messages.OccurrenceRecord()
    if number != _FORMAT:
        return messages.OccurrenceRecord()
    return messages.OccurrenceRecord(
        attempt=attempt,
        first_try_us=first_try_us,
        trigger=trigger,
        run_uid=run_uid,
        last_error=last_error,
    )


def is_due(due_us: int) -> bool:
    """Whether a score can stand for a due; those beyond stand for claims."""
    return 0 <= due_us < points.DUE_LIMIT_US


def checked_due(due_us: int) -> int:
    """The due itself; raises Bug where it cannot be stored."""
    if not is_due(due_us):
        raise errors.Bug(f"a due of {due_us} us cannot be stored: it is outside [0, 2^52)")
    return due_us
