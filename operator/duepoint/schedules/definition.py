"""The record kept in Redis for each schedule: enough to fire it without asking the API server.

A definition is stored packed, about 64 bytes: what many schedules share (namespace, rule, target)
is a number that the shard's ``interned`` table resolves; a rule that hardly anyone shares stands
in the record itself. Layout of format 1, integers as LEB128 varints unless said otherwise::

    0  format number (1)                        one byte
    1  state                                    one byte; settle rewrites it in place
    2  flags: 1 UUID, 2 rule inline, 4 counted  one byte
    3  timing version                           4 bytes
    7  fingerprint of what it was made from     4 bytes
   11  uid: 16 bytes, or length + text
       generation, timing generation, collision, created (s),
       not-before (us, zigzag distance from created: mostly 0, one byte)
       namespace number, target number
       rule number, or length + text
       name: length + text
       flag 4 (the rule has maxRuns): runs of regular slots that have started, 4 bytes, which
       settle counts up in place

Pure. ``pack`` and ``unpack`` are inverse; the format number comes first so that a reader can tell
what it cannot read. The first eleven bytes are fixed because scripts look at them.
"""

from __future__ import annotations

import enum
import functools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from duepoint.schedules import points
from duepoint.schedules import rule as rules

FORMAT = 1
STATE_OFFSET = 1
VERSION_OFFSET = 3
FINGERPRINT_OFFSET = 7
FINGERPRINT_LENGTH = 4
UID_OFFSET = FINGERPRINT_OFFSET + FINGERPRINT_LENGTH
#: Of a definition that nothing is known of.
NO_FINGERPRINT = bytes(FINGERPRINT_LENGTH)

UID_IS_UUID = 1
_RULE_INLINE = 2
_UUID_LENGTH = 36
_DASHES = slice(8, 24, 5)
#: Varints of one byte, and two bytes of a longer one that are not its last.
_SHORT = tuple(bytes([number]) for number in range(0x80))
_PAIRS = tuple(bytes((low | 0x80, high | 0x80)) for high in range(0x80) for low in range(0x80))
COUNTED = 4
COUNT_LENGTH = 4
#: Pattern of a number as it is stored.
VARINT = rb"[\x80-\xff]{0,9}[\x00-\x7f]"


class State(enum.IntEnum):
    """What the sweep may expect of a definition's chain. The numbers are stored."""

    ARMED = 0
    SUSPENDED = 1
    COMPLETED = 2


class Definition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One schedule as the queue knows it.

    Attributes:
        generation: metadata.generation this was made from.
        timing_generation: generation of the last edit of a timing field.
        created_us: metadata.creationTimestamp; anchor of ``@every`` without a startTime.
        not_before_us: slots at or before it are not this definition's (creation, last timing
            edit, resume).
        rule: when it runs and with which policies.
        target: digest of the blob that says what to do (``actions.py``), as text.
        collision: how many other schedules were found under its first ids.
        started: runs of regular slots so far; kept only where the rule limits them.
        fingerprint: of all that it was made from; two with the same one are the same.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    timing_generation: int
    created_us: int
    not_before_us: int
    state: State
    rule: rules.Rule
    target: str
    collision: int = 0
    started: int = 0
    fingerprint: bytes = NO_FINGERPRINT

    @property
    def runs_left(self) -> int | None:
        """How many regular slots may still start; None = any number."""
        most = self.rule.timing.max_runs
        return None if most is None else max(0, most - self.started)

    @property
    def is_complete(self) -> bool:
        """Whether no slot is left; the chain may be there until it notices."""
        return self.state is State.COMPLETED or (self.state is State.ARMED and self.runs_left == 0)

    @property
    def id(self) -> points.ScheduleId:
        return points.schedule_id(self.uid, self.namespace, collision=self.collision)

    @property
    def timing_version(self) -> points.TimingVersion:
        return points.timing_version(self.uid, self.timing_generation)

    @property
    def identity(self) -> str:
        """``namespace/name``, as hashes of jitter and ``H`` want it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A definition as read from Redis, its shared parts still numbers.

    ``rule`` is the inline text, or the number of an interned one.
    """

    state: State
    timing_version: points.TimingVersion
    uid: str
    generation: int
    timing_generation: int
    collision: int
    created_us: int
    not_before_us: int
    namespace: int
    target: int
    rule: int | bytes
    name: str
    started: int = 0
    fingerprint: bytes = NO_FINGERPRINT


class UnknownFormat(ValueError):
    """The bytes are not a record that this version can read."""


def pack(definition: Definition, *, namespace: int, target: int, rule: int | None) -> bytes:
    """The record to store; ``rule`` None writes the rule's text into the record."""
    uid = definition.uid
    packed_uid = _packed_uuid(uid)
    flags = UID_IS_UUID if packed_uid else 0
    numbers = _varints(namespace, target)
    if rule is None:
        flags |= _RULE_INLINE
        numbers += _sized(rules.text(definition.rule))
    else:
        numbers = _varints(namespace, target, rule)
    count = b""
    if definition.rule.timing.max_runs is not None:
        flags |= COUNTED
        count = _count(definition.started)
    generation, timing_generation = definition.generation, definition.timing_generation
    created_s = definition.created_us // 1_000_000  # creationTimestamp has whole seconds
    name = definition.name.encode()
    parts = (
        _HEADS[definition.state][flags],
        points.timing_version(uid, timing_generation),
        definition.fingerprint,
        packed_uid or _sized(uid.encode()),
        _varints(generation, timing_generation, definition.collision),
        _varint(created_s),
        _varint(_zigzag(definition.not_before_us - created_s * 1_000_000)),
        numbers,
        _varint(len(name)),
        name,
        count,
    )
    return b"".join(parts)


def unpack(record: bytes) -> Packed:
    """The parts of a stored record; raises UnknownFormat on bytes that are not one."""
    try:
        return _unpack(record)
    except (IndexError, ValueError) as error:
        raise UnknownFormat(f"definition record of {len(record)} bytes cannot be read") from error


def numbers(record: bytes) -> tuple[int, ...]:
    """What a record names by number: namespace, target and, unless it is inline, rule.

    Raises UnknownFormat on bytes that are not a record.
    """
    try:
        reader, count = _at_numbers(record)
        return tuple(reader.varint() for _ in range(count))
    except (IndexError, ValueError) as error:
        raise UnknownFormat(f"definition record of {len(record)} bytes cannot be read") from error


def renumbered(record: bytes, number_of: Mapping[int, int]) -> bytes:
    """The record with other numbers for the same texts, as another shard gave them."""
    reader, count = _at_numbers(record)
    head = record[: reader.position]
    renamed = [_varint(number_of[reader.varint()]) for _ in range(count)]
    return b"".join((head, *renamed, record[reader.position :]))


def _at_numbers(record: bytes) -> tuple[_Reader, int]:
    """A reader in front of the numbers, and how many there are."""
    if record[0] != FORMAT:
        raise ValueError(f"format {record[0]}")
    reader = _Reader(record, UID_OFFSET)
    flags = record[2]
    reader.take(16 if flags & UID_IS_UUID else reader.varint())
    for _ in range(5):  # generations, collision, created, not-before
        reader.varint()
    return reader, 2 if flags & _RULE_INLINE else 3


def resolve(packed: Packed, *, namespace: str, rule: rules.Rule, target: str) -> Definition:
    """The definition behind a record, once its numbers have been looked up."""
    return Definition(
        namespace=namespace,
        name=packed.name,
        uid=packed.uid,
        generation=packed.generation,
        timing_generation=packed.timing_generation,
        created_us=packed.created_us,
        not_before_us=packed.not_before_us,
        state=packed.state,
        rule=rule,
        target=target,
        collision=packed.collision,
        started=packed.started,
        fingerprint=packed.fingerprint,
    )


def _unpack(record: bytes) -> Packed:
    if record[0] != FORMAT:
        raise ValueError(f"format {record[0]}")
    flags = record[2]
    reader = _Reader(record, UID_OFFSET)
    uid = str(uuid.UUID(bytes=reader.take(16))) if flags & UID_IS_UUID else reader.text()
    generation, timing_generation, collision = reader.varint(), reader.varint(), reader.varint()
    created_us = reader.varint() * 1_000_000
    packed = Packed(
        state=State(record[STATE_OFFSET]),
        timing_version=points.TimingVersion(record[VERSION_OFFSET : VERSION_OFFSET + 4]),
        uid=uid,
        generation=generation,
        timing_generation=timing_generation,
        collision=collision,
        created_us=created_us,
        not_before_us=created_us + _unzigzag(reader.varint()),
        namespace=reader.varint(),
        target=reader.varint(),
        rule=reader.sized() if flags & _RULE_INLINE else reader.varint(),
        name=reader.text(),
        started=int.from_bytes(reader.take(COUNT_LENGTH), "big") if flags & COUNTED else 0,
        fingerprint=record[FINGERPRINT_OFFSET:UID_OFFSET],
    )
    if reader.position != len(record):
        raise ValueError("bytes after the end")
    return packed


#: The first three bytes, by state and flags.
_HEADS = tuple(tuple(bytes((FORMAT, state, flags)) for flags in range(8)) for state in State)


def _packed_uuid(uid: str) -> bytes:
    """Its 16 bytes; none of another text, or another spelling, which must come back as it was."""
    if len(uid) != _UUID_LENGTH or uid[_DASHES] != "----":
        return b""
    digits = uid.replace("-", "")
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        return b""
    return packed if packed.hex() == digits else b""


def _count(number: int) -> bytes:
    return min(number, 0xFFFFFFFF).to_bytes(COUNT_LENGTH, "big")


def _zigzag(number: int) -> int:
    return number * 2 if number >= 0 else -number * 2 - 1


def _unzigzag(number: int) -> int:
    return number >> 1 if number % 2 == 0 else -(number >> 1) - 1


@functools.lru_cache(maxsize=4096)
def _varints(*numbers: int) -> bytes:
    """Of what many definitions have in common."""
    return b"".join(map(_varint, numbers))


def _varint(number: int) -> bytes:
    if number < 1 << 7:
        return _SHORT[number]
    encoded = b""
    while number > 0x3FFF:
        encoded += _PAIRS[number & 0x3FFF]
        number >>= 14
    if number > 0x7F:
        return encoded + _PAIRS[number & 0x7F][:1] + _SHORT[number >> 7]
    return encoded + _SHORT[number]


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def varint_at(record: bytes, position: int) -> tuple[int, int]:
    """The number that stands there, and where it ends; raises IndexError where it is cut off."""
    number = shift = 0
    while True:
        byte = record[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7


class _Reader:
    """Takes a record apart, front to back."""

    def __init__(self, record: bytes, position: int) -> None:
        self._record = record
        self.position = position

    def take(self, length: int) -> bytes:
        taken = self._record[self.position : self.position + length]
        if len(taken) != length:
            raise ValueError("truncated")
        self.position += length
        return taken

    def varint(self) -> int:
        number, self.position = varint_at(self._record, self.position)
        return number

    def sized(self) -> bytes:
        return self.take(self.varint())

    def text(self) -> str:
        return self.sized().decode()
