"""The few facts of a definition that a first attempt needs, read straight from its record.

For claims of hundreds of points: a whole ``Definition`` costs several times more than everything
else that happens to a point, and nearly all of it is the same for all schedules of one kind. A
*kind* is the numbers of namespace, rule and target; the parts behind them are looked up once for
all its schedules. Only the usual record has a brief: format 1, armed, its uid a UUID, its rule
interned. Every other one is None and read as a definition. Pure; the layout is ``definition.py``'s.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from duepoint.schedules import definition as definitions
from duepoint.schedules import rule as rules

#: format, state, flags: 1, ARMED, uid is a UUID and nothing else.
_USUAL = bytes([definitions.FORMAT, definitions.State.ARMED, 1])
_UID = definitions.VERSION_OFFSET + 4
_NUMBERS = _UID + 16
#: Seconds of our time take five bytes as a varint.
_CREATED_LENGTH = 5


class Brief(NamedTuple):
    """One schedule in short."""

    uid: str
    name: str
    generation: int
    created_us: int
    kind: Hashable


class Kind(NamedTuple):
    """What schedules of one kind share; ``target`` is the digest of the action."""

    namespace: str
    rule: rules.Rule
    target: str


class Briefs(NamedTuple):
    """Briefs in the order in which they were asked for, and the kinds they are of."""

    rows: Sequence[Brief | None]
    kinds: Mapping[Hashable, Kind]


def unpack(record: bytes) -> Brief | None:
    """The brief of a record; None where it is not of the usual form."""
    if not record.startswith(_USUAL):
        return None
    try:
        return _unpack(record)
    except (IndexError, UnicodeDecodeError):
        return None


def version(record: bytes) -> bytes:
    """The timing version in a record of the usual form."""
    return record[definitions.VERSION_OFFSET : _UID]


def _unpack(record: bytes) -> Brief | None:
    generation, at = _varint(record, _NUMBERS)
    _, at = _varint(record, at)  # of the timing
    _, at = _varint(record, at)  # collisions
    created, at = _seconds(record, at)
    _, at = _varint(record, at)  # not before
    namespace, at = _varint(record, at)
    target, at = _varint(record, at)
    rule, at = _varint(record, at)
    length, at = _varint(record, at)
    if at + length != len(record):
        return None
    uid = record[_UID:_NUMBERS].hex()
    return Brief(
        f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:]}",
        record[at:].decode(),
        generation,
        created * 1_000_000,
        (namespace, rule, target),
    )


def _varint(record: bytes, at: int) -> tuple[int, int]:
    byte = record[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = record[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _seconds(record: bytes, at: int) -> tuple[int, int]:
    """A varint of five bytes without a loop; any other with one."""
    a, b, c, d, e = record[at : at + _CREATED_LENGTH]
    if e < 0x80 <= min(a, b, c, d):
        number = a & 0x7F | (b & 0x7F) << 7 | (c & 0x7F) << 14 | (d & 0x7F) << 21 | e << 28
        return number, at + _CREATED_LENGTH
    return _varint(record, at)
