"""Which generation of which schedule a stored record is of, and nothing else.

A comparison of everything stored with everything listed asks this of each record. Taking the whole
record apart costs five times as much as matching it, so the usual one (format 1, its uid a UUID,
its rule interned) is matched; every other one is unpacked. Pure; the layout is ``definition.py``'s.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from duepoint.schedules import definition as definitions

_VARINT = definitions.VARINT
#: Flags, fingerprint, uid, generation, collision, namespace, length of the name, name and what
#: follows it.
_usual = re.compile(
    b"".join(
        (
            re.escape(bytes([definitions.FORMAT])),
            rb"[\x00-\x02]([\x01\x05]).{4}(.{4})(.{16})",
            b"(%b)%b(%b)%b%b" % ((_VARINT,) * 5),
            b"(%b)%b%b(%b)(.*)" % ((_VARINT,) * 4),
        )
    ),
    re.DOTALL,
).fullmatch
_IS_COUNTED = bytes([definitions.UID_IS_UUID | definitions.COUNTED])


class Heading(NamedTuple):
    """Whose record it is; the namespace by its number."""

    uid: str
    generation: int
    collision: int
    namespace: int
    name: str
    fingerprint: bytes


def read(record: bytes) -> Heading:
    """The heading of a record; raises definitions.UnknownFormat on bytes that are not one."""
    match = _usual(record)
    if match is None:
        return _unpacked(record)
    flags, fingerprint, uid, generation, collision, namespace, length, rest = match.groups()
    behind_name = definitions.COUNT_LENGTH if flags == _IS_COUNTED else 0
    if _number(length) + behind_name != len(rest):
        return _unpacked(record)
    try:
        name = rest[: len(rest) - behind_name].decode()
    except UnicodeDecodeError:
        return _unpacked(record)
    numbers = _number(generation), _number(collision), _number(namespace)
    return Heading(_text(uid), *numbers, name, fingerprint)


def _unpacked(record: bytes) -> Heading:
    packed = definitions.unpack(record)
    numbers = packed.generation, packed.collision, packed.namespace
    return Heading(packed.uid, *numbers, packed.name, packed.fingerprint)


def _text(uid: bytes) -> str:
    text = uid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _number(varint: bytes) -> int:
    if len(varint) == 1:
        return varint[0]
    return definitions.varint_at(varint, 0)[0]
