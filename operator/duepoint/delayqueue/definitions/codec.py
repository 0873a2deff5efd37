"""Packs and unpacks the stored record of a definition. Pure.

A record takes about 68 bytes. The parts that many schedules share (lane, rule, target) are a digest
of 8 bytes that names a text of the shard (``kinds``); a rule that hardly any schedule shares is in
the record itself. Layout of format 1, integers as LEB128 varints unless noted otherwise::

    0  format number (1)                          one byte
    1  state                                      one byte; settle rewrites it in place
    2  flags: 1 rule inline, 2 uid text, 4 counted, 8 payload, 16 once  one byte
    3  timing version                             4 bytes
    7  fingerprint of the object it is made from  4 bytes
   11  uid: a UUID, or the hash of another text   16 bytes
   27  kind                                       8 bytes
   35  generation, timing generation, collision, created (s),
       not-before (us, zigzag distance from created: mostly 0, one byte)
       name: length + text
       flag 1: text of the rule: length + text
       flag 2: uid: length + text
       flag 16 (the rule has no instant of its own): the one instant, us, 7 bytes
       flag 8: 8 bytes of signature of the payload, then the payload: length + text
       flag 4 (the rule has maxRuns): runs of regular slots that have started, 4 bytes, which
       settle counts up in place

``unpack`` reads any record; ``identities`` and ``columns.columns`` read the usual ones of a
whole batch. Scripts read the bytes before the name (``scripts/includes/definition.lua``).
"""

from __future__ import annotations

import binascii
import functools
import hashlib
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import msgspec

from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import (
    FINGERPRINT_LENGTH,
    NO_FINGERPRINT,
    PAYLOAD_MAC_LENGTH,
    Definition,
    State,
)

FORMAT = 1
_FLAGS_OFFSET = 2
#: Position of the timing version.
VERSION = slice(3, 7)
#: Position of the digest of the kind, even in an unreadable record.
KIND = slice(27, 35)
_RULE_INLINE, _UID_TEXT, _COUNTED, _PAYLOAD, _ONCE = 1, 2, 4, 8, 16
_UID_LENGTH = 16
_COUNT_LENGTH = 4
_INSTANT_LENGTH = 7
#: The first two bytes of a definition that should have a chain.
ARMED = bytes((FORMAT, State.ARMED))

#: Possessive, because a varint matches in only one way: saves a fifth of the time for a record.
_VARINT = rb"[\x80-\xff]{0,9}+[\x00-\x7f]"
#: The parts of a record up to its name, in their order.
LAYOUT = {
    "format": re.escape(bytes([FORMAT])),
    "state": rb"[\x00-\x02]",
    "flags": rb"[\x00-\x1f]",
    "version": b".{4}",
    "fingerprint": b".{%d}" % FINGERPRINT_LENGTH,
    "uid": b".{%d}" % _UID_LENGTH,
    "kind": b".{%d}" % (KIND.stop - KIND.start),
    "generation": _VARINT,
    "timing_generation": _VARINT,
    "collision": _VARINT,
    "created": _VARINT,
    "not_before": _VARINT,
    "name_length": _VARINT,
}


class UnknownRecord(ValueError):
    """The bytes are not a record that this version can read."""


class StoredIdentity(NamedTuple):
    """The parts of a stored definition that a comparison with the objects needs; kept small.

    There may be millions. ``collision`` counts the ids that others had before; ``fingerprint`` is
    that of the object from which this was made.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    collision: int
    fingerprint: bytes


class Packed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A definition as it is stored.

    Attributes:
        kind: names its lane, its target and, if ``inline`` is empty, its rule.
        inline: the text of its rule.
        once_us: the instant that completes a rule without one.
    """

    state: State
    timing_version: points.TimingVersion
    uid: str
    generation: int
    timing_generation: int
    collision: int
    created_us: int
    not_before_us: int
    kind: bytes
    name: str
    inline: bytes = b""
    started: int = 0
    fingerprint: bytes = NO_FINGERPRINT
    once_us: int | None = None
    payload: bytes = b""
    payload_mac: bytes = b""

    def identity(self, namespace: str) -> StoredIdentity:
        return StoredIdentity(
            self.uid, namespace, self.name, self.generation, self.collision, self.fingerprint
        )

    def resolved(
        self,
        *,
        namespace: str,
        rule: rules.Rule,
        target: str,
        owner: points.SetIdentity | None = None,
        is_paused: bool = False,
    ) -> Definition:
        """Return the definition, given the parts that its kind stands for."""
        if self.once_us is not None:
            rule = rules.at_instant(rule, self.once_us)
        return Definition(
            namespace=namespace,
            name=self.name,
            uid=self.uid,
            generation=self.generation,
            timing_generation=self.timing_generation,
            created_us=self.created_us,
            not_before_us=self.not_before_us,
            state=self.state,
            rule=rule,
            target=target,
            collision=self.collision,
            started=self.started,
            fingerprint=self.fingerprint,
            owner=owner,
            payload=self.payload,
            payload_mac=self.payload_mac,
            is_paused=is_paused,
            once_us=self.once_us,
            version=self.timing_version if owner is not None else points.TimingVersion(b""),
        )


class MemberParts(NamedTuple):
    """The parts of a member's record that a first attempt needs, with its payload or instant.

    ``generation``, ``created`` and ``kind`` are in their stored form.
    """

    uid: bytes
    generation: bytes
    created: bytes
    kind: bytes
    name: bytes
    once_us: int | None
    payload: bytes
    payload_mac: bytes


# -- writing ---------------------------------------------------------------------------------


def record(definition: Definition, kind: bytes, *, is_inline: bool) -> bytes:
    """Return the record of a Schedule.

    Args:
        is_inline: whether to store the text of its rule in the record.
    """
    uid = definition.uid
    flags, tail = 0, b""
    packed_uid = _packed_uuid(uid)
    if is_inline:
        flags, tail = _RULE_INLINE, _sized(rules.text(definition.rule))
    if not packed_uid:
        packed_uid = _hashed(uid)
        flags, tail = flags | _UID_TEXT, tail + _sized(uid.encode())
    if definition.rule.timing.max_runs is not None:
        flags, tail = flags | _COUNTED, tail + _count(definition.started)
    generation, timing_generation = definition.generation, definition.timing_generation
    created_s = definition.created_us // 1_000_000  # creationTimestamp has whole seconds
    name = definition.name.encode()
    return b"".join(
        (
            HEADS[definition.state][flags],
            points.timing_version(uid, timing_generation),
            definition.fingerprint,
            packed_uid,
            kind,
            _varints(generation, timing_generation, definition.collision),
            _varint(created_s),
            _varint(_zigzag(definition.not_before_us - created_s * 1_000_000)),
            _varint(len(name)),
            name,
            tail,
        )
    )


def member_record(
    state: State,
    identity: bytes,
    kind: bytes,
    name: bytes,
    *,
    created_us: int,
    not_before_us: int,
    inline: bytes,
    once_us: int | None,
    payload: bytes,
    payload_mac: bytes,
) -> bytes:
    """Return the record of a member.

    Args:
        identity: timing version, fingerprint and uid, concatenated.
        inline: the text of the rule; empty if the kind has it.
    """
    flags, after = 0, [_varint(len(name)), name]
    if inline:
        flags = _RULE_INLINE
        after.append(_sized(inline))
    if once_us is not None:
        flags |= _ONCE
        after.append(once_us.to_bytes(_INSTANT_LENGTH))
    if payload:
        flags |= _PAYLOAD
        after += (payload_mac, _varint(len(payload)), payload)
    times = _member_times(created_us, not_before_us)
    return b"".join((HEADS[state][flags], identity, kind, times, *after))


@functools.lru_cache(maxsize=4096)
def _member_times(created_us: int, not_before_us: int) -> bytes:
    """Return the bytes between kind and name; the same for most members written together."""
    created_s = created_us // 1_000_000
    not_before = _varint(_zigzag(not_before_us - created_s * 1_000_000))
    return b"".join((_MEMBERS_NUMBERS, _varint(created_s), not_before))


def packed_uid(uid: str) -> bytes:
    """Return the uid as a record has it: 16 bytes."""
    return _packed_uuid(uid) or _hashed(uid)


#: The first three bytes, by state and flags.
HEADS = tuple(tuple(bytes((FORMAT, state, flags)) for flags in range(32)) for state in State)
#: Generation, timing generation and collision of a member: it has none of them.
_MEMBERS_NUMBERS = bytes((1, 1, 0))
_UUID_TEXT_LENGTH = 36
_DASHES = slice(8, 24, 5)
#: Varints of one byte, and two bytes of a longer one that are not its last.
_SHORT = tuple(bytes([number]) for number in range(0x80))
_PAIRS = tuple(bytes((low | 0x80, high | 0x80)) for high in range(0x80) for low in range(0x80))


def _packed_uuid(uid: str) -> bytes:
    """Return a UUID's 16 bytes; empty for other texts or spellings, which must stay as they are."""
    if len(uid) != _UUID_TEXT_LENGTH or uid[_DASHES] != "----":
        return b""
    digits = uid.replace("-", "")
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        return b""
    return packed if packed.hex() == digits else b""


def _hashed(uid: str) -> bytes:
    return hashlib.blake2b(uid.encode(), digest_size=_UID_LENGTH).digest()


def _count(number: int) -> bytes:
    return min(number, 0xFFFFFFFF).to_bytes(_COUNT_LENGTH, "big")


def _zigzag(number: int) -> int:
    return number * 2 if number >= 0 else -number * 2 - 1


@functools.lru_cache(maxsize=4096)
def _varints(*numbers: int) -> bytes:
    """Return these varints; cached, because many definitions have the same."""
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


# -- reading one -----------------------------------------------------------------------------

_head = re.compile(
    b"".join(b"(?P<%b>%b)" % (name.encode(), part) for name, part in LAYOUT.items()), re.DOTALL
).match


def unpack(record: bytes) -> Packed:
    """Return the parts of a stored record; raises UnknownRecord if the bytes are not one."""
    found = _matched(record)
    (_, state, (flags,), version, fingerprint, uid, kind, *varints, length) = found.groups()
    generation, timing_generation, collision, created_s, not_before = map(varint_number, varints)
    rest = _Rest(record, found.end())
    try:
        name = rest.take(varint_number(length)).decode()
        inline = rest.sized() if flags & _RULE_INLINE else b""
        text = rest.sized().decode() if flags & _UID_TEXT else uuid_text(uid)
        once_us = int.from_bytes(rest.take(_INSTANT_LENGTH)) if flags & _ONCE else None
        mac = rest.take(PAYLOAD_MAC_LENGTH) if flags & _PAYLOAD else b""
        payload = rest.sized() if flags & _PAYLOAD else b""
        started = int.from_bytes(rest.take(_COUNT_LENGTH)) if flags & _COUNTED else 0
        rest.end()
    except ValueError as error:
        raise _unknown(record) from error
    return Packed(
        state=State(state[0]),
        timing_version=points.TimingVersion(version),
        uid=text,
        generation=generation,
        timing_generation=timing_generation,
        collision=collision,
        created_us=created_s * 1_000_000,
        not_before_us=created_s * 1_000_000 + _unzigzag(not_before),
        kind=kind,
        inline=inline,
        name=name,
        started=started,
        fingerprint=fingerprint,
        once_us=once_us,
        payload=payload,
        payload_mac=mac,
    )


def fingerprint(record: bytes) -> bytes:
    """Return the fingerprint in a record."""
    return record[VERSION.stop : VERSION.stop + FINGERPRINT_LENGTH]


def readable(record: bytes) -> Packed | None:
    """Return the parts of a stored record; None if the bytes are not one."""
    try:
        return unpack(record)
    except UnknownRecord:
        return None


#: First bytes of records of armed members with a payload or an instant, and no other flag.
ARMED_MEMBERS = tuple(HEADS[State.ARMED][flags] for flags in (_PAYLOAD, _ONCE, _PAYLOAD | _ONCE))


def member_parts(record: bytes) -> MemberParts | None:
    """Return the parts of a record that begins with one of ``ARMED_MEMBERS``; None if damaged."""
    found = _head(record)
    if found is None:
        return None
    flags, end = record[_FLAGS_OFFSET], found.end()
    uid, generation, created, kind, length = found.group(
        "uid", "generation", "created", "kind", "name_length"
    )
    name_end = end + varint_number(length)
    name, rest = record[end:name_end], name_end
    once_us = None
    if flags & _ONCE:
        once_us, rest = (
            int.from_bytes(record[rest : rest + _INSTANT_LENGTH]),
            rest + _INSTANT_LENGTH,
        )
    mac = payload = b""
    if flags & _PAYLOAD:
        mac, rest = record[rest : rest + PAYLOAD_MAC_LENGTH], rest + PAYLOAD_MAC_LENGTH
        sized = _leading_varint(record, rest)
        if sized is None:
            return None
        rest = sized.end() + varint_number(sized[0])
        payload = record[sized.end() : rest]
    if rest != len(record):
        return None
    return MemberParts(uid, generation, created, kind, name, once_us, payload, mac)


def kind(record: bytes) -> bytes:
    """Return the digest of a record's kind; raises UnknownRecord if the bytes are not a record."""
    return _matched(record)["kind"]


def _matched(record: bytes) -> re.Match[bytes]:
    """Return the match of the parts up to the name."""
    found = _head(record)
    if found is None:
        raise _unknown(record)
    return found


def _unknown(record: bytes) -> UnknownRecord:
    return UnknownRecord(f"definition record of {len(record)} bytes cannot be read")


class _Rest:
    """Reads the parts after the fixed ones, front to back; raises ValueError past the end."""

    def __init__(self, record: bytes, position: int) -> None:
        self._record = record
        self._position = position

    def take(self, length: int) -> bytes:
        taken = self._record[self._position : self._position + length]
        if len(taken) != length:
            raise ValueError("truncated")
        self._position += length
        return taken

    def sized(self) -> bytes:
        found = _leading_varint(self._record, self._position)
        if found is None:
            raise ValueError("truncated")
        self._position = found.end()
        return self.take(varint_number(found[0]))

    def end(self) -> None:
        if self._position != len(self._record):
            raise ValueError("bytes after the end")


_leading_varint = re.compile(_VARINT, re.DOTALL).match


def uuid_text(uid: bytes) -> str:
    text = uid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_HEX_UID = struct.Struct("8s4s4s4s12s")


def uuid_texts(uids: Sequence[bytes]) -> list[str]:
    """``uuid_text`` of each, in a third of the time; there is at least one."""
    parts = _HEX_UID.iter_unpack(binascii.hexlify(b"".join(uids)))
    return b"\n".join(map(b"-".join, parts)).decode().split("\n")


def _unzigzag(number: int) -> int:
    return number >> 1 if number % 2 == 0 else -(number >> 1) - 1


def varint_number(varint: bytes) -> int:
    if len(varint) == 1:
        return varint[0]
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 0x7F
    return number


# -- reading a batch -------------------------------------------------------------------------

#: Separator after each record of a batch; no plain name contains it.
_END = b"\xff\xfe"
#: Finds the parts of many records at once.
_Find = Callable[[bytes], list[tuple[bytes, ...]]]


def finder(*captured: str, head: bytes = b"") -> _Find:
    """Return a finder of (record, captured parts in the order of the layout, name) without flags.

    Args:
        head: the first bytes of each record; by default any format, state and flags.
    """
    parts = {name: b"(%b)" % part if name in captured else part for name, part in LAYOUT.items()}
    if head:
        parts = {**parts, "format": re.escape(head), "state": b"", "flags": b""}
    return re.compile(
        b"(" + b"".join(parts.values()) + rb"([\x20-\x7e]*))" + _END, re.DOTALL
    ).findall


def part_columns(find: _Find, records: Sequence[bytes | None]) -> list[tuple[bytes, ...]] | None:
    """Return the parts of all records by column; None unless each record is of the usual form.

    The first column must equal the records: a damaged record may have hidden others.
    """
    if None in records:
        return None
    found = list(zip(*find(_END.join([*cast("Sequence[bytes]", records), b""])), strict=True))
    if not found or found[0] != tuple(records):
        return None
    *_, lengths, names = found
    length_of = {varint: varint_number(varint) for varint in set(lengths)}
    return found if list(map(length_of.__getitem__, lengths)) == list(map(len, names)) else None


def parts(find: _Find, records: Sequence[bytes]) -> list[tuple[bytes, ...] | None]:
    """Return the parts of each record; None for one that is not of the usual form."""
    if (found := part_columns(find, records)) is not None:
        return list(zip(*found, strict=True))
    if len(records) <= 1:
        return [None] * len(records)
    half = len(records) // 2
    return parts(find, records[:half]) + parts(find, records[half:])


_find_identity = finder("fingerprint", "uid", "kind", "generation", "collision", "name_length")


def identities(
    records: Sequence[bytes], namespaces: Mapping[bytes, str]
) -> list[StoredIdentity | None]:
    """Return the identity of each record; None for one of another form, or of an unknown kind."""
    answers: list[StoredIdentity | None] = [None] * len(records)
    usual = [place for place, record in enumerate(records) if record[2:3] == b"\0"]
    found = parts(_find_identity, [records[place] for place in usual])
    for place, row in zip(usual, found, strict=True):
        if row is None:
            continue
        _, fingerprint, uid, kind, generation, collision, _, name = row
        if (namespace := namespaces.get(kind)) is not None:
            answers[place] = StoredIdentity(
                uuid_text(uid),
                namespace,
                name.decode(),
                varint_number(generation),
                varint_number(collision),
                fingerprint,
            )
    return answers
