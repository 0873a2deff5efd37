"""Packs and unpacks the stored record of a definition. Pure.

A record takes about 70 bytes. The parts that many schedules share (lane, rule, target) are a digest
of 8 bytes that names a text of the shard (``kinds``); a rule that hardly any schedule shares is in
the record itself. Layout of format 1, numbers with their first byte first::

    0  format number (1)                          one byte
    1  state                                      one byte; settle rewrites it in place
    2  flags, see below                           one byte
    3  timing version                             4 bytes
    7  fingerprint of the object it is made from  4 bytes
   11  uid: a UUID, or the hash of another text   16 bytes
   27  kind                                       8 bytes
   35  generation                                 4 bytes
   39  created (s)                                4 bytes
   43  name: length + text                        one byte + text
       flag 32: timing generation, 4 bytes; not-before (us), 8 bytes; without it these are 1
       and the creation
       flag 1: text of the rule: length in 2 bytes + text
       flag 2: uid: length in 2 bytes + text
       flag 16 (the rule has no instant of its own): the one instant, us, 7 bytes
       flag 8: 8 bytes of signature of the payload, then the payload: length in 2 bytes + text
       flag 4 (the rule has maxRuns): runs of regular slots that have started, 4 bytes, which
       settle counts up in place

``unpack`` reads any record; ``columns`` reads the usual ones of a whole batch. Scripts read it with
``scripts/includes/definition.lua``.
"""

from __future__ import annotations

import binascii
import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import (
    NO_FINGERPRINT,
    PAYLOAD_MAC_LENGTH,
    Definition,
    State,
)

FORMAT = 1
#: Positions of flags, timing version, fingerprint and kind, even in an unreadable record.
FLAGS = 2
VERSION = slice(3, 7)
_FINGERPRINT = slice(7, 11)
KIND = slice(27, 35)
_RULE_INLINE, _UID_TEXT, _COUNTED, _PAYLOAD, _ONCE, NUMBERED = 1, 2, 4, 8, 16, 32
_ALL_FLAGS = 63
#: The flags of the parts that ``own_parts`` reads.
OWN = _PAYLOAD | _ONCE
#: The parts of a record up to its name; the last one is the length of the name.
HEAD = struct.Struct(">BBB4s4s16s8sIIB")
_WRITTEN_HEAD = struct.Struct(">BBB24s8sIIB")
NUMBERS = struct.Struct(">Iq")
_SIZE = struct.Struct(">H")
_COUNT = struct.Struct(">I")
_UID_LENGTH = 16
_INSTANT_LENGTH = 7
#: The first two bytes of a definition that should have a chain.
ARMED = bytes((FORMAT, State.ARMED))


class UnknownRecord(ValueError):
    """The bytes are not a record that this version can read."""


class StoredIdentity(NamedTuple):
    """The parts of a stored definition that a comparison with the objects needs; kept small.

    There may be millions. ``fingerprint`` is that of the object that this was made from.
    """

    uid: str
    namespace: str
    name: str
    generation: int
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
        return StoredIdentity(self.uid, namespace, self.name, self.generation, self.fingerprint)

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
            started=self.started,
            fingerprint=self.fingerprint,
            owner=owner,
            payload=self.payload,
            payload_mac=self.payload_mac,
            is_paused=is_paused,
            once_us=self.once_us,
            version=self.timing_version if owner is not None else points.TimingVersion(b""),
        )


class OwnParts(NamedTuple):
    """The instant of a member, and its payload with the payload's signature, if it has them."""

    once_us: int | None = None
    text: bytes = b""
    mac: bytes = b""


# -- writing ---------------------------------------------------------------------------------


def record(definition: Definition, kind: bytes, *, is_inline: bool) -> bytes:
    """Return the record of a Schedule.

    Args:
        is_inline: whether to store the text of its rule in the record.
    """
    uid = definition.uid
    flags, tail = 0, b""
    numbers = (definition.timing_generation, definition.not_before_us)
    created_s = definition.created_us // 1_000_000  # creationTimestamp has whole seconds
    if numbers != (1, created_s * 1_000_000):
        flags, tail = NUMBERED, NUMBERS.pack(*numbers)
    if is_inline:
        flags, tail = flags | _RULE_INLINE, tail + _sized(rules.text(definition.rule))
    packed = _packed_uuid(uid)
    if not packed:
        packed = _hashed(uid)
        flags, tail = flags | _UID_TEXT, tail + _sized(uid.encode())
    if definition.rule.timing.max_runs is not None:
        flags, tail = flags | _COUNTED, tail + _COUNT.pack(min(definition.started, 0xFFFFFFFF))
    version = points.timing_version(uid, definition.timing_generation)
    identity = version + definition.fingerprint + packed
    name = definition.name.encode()
    head = _WRITTEN_HEAD.pack(
        FORMAT, definition.state, flags, identity, kind, definition.generation, created_s, len(name)
    )
    return b"".join((head, name, tail))


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
        created_us: whole seconds.
        inline: the text of the rule; empty if the kind has it.
    """
    flags, after = 0, [name]
    if not_before_us != created_us:
        flags = NUMBERED
        after.append(NUMBERS.pack(1, not_before_us))
    if inline:
        flags |= _RULE_INLINE
        after.append(_sized(inline))
    if once_us is not None:
        flags |= _ONCE
        after.append(once_us.to_bytes(_INSTANT_LENGTH))
    if payload:
        flags |= _PAYLOAD
        after += (payload_mac, _sized(payload))
    created_s = created_us // 1_000_000
    head = _WRITTEN_HEAD.pack(FORMAT, state, flags, identity, kind, 1, created_s, len(name))
    return b"".join((head, *after))


def packed_uid(uid: str) -> bytes:
    """Return the uid as a record has it: 16 bytes."""
    return _packed_uuid(uid) or _hashed(uid)


_UUID_TEXT_LENGTH = 36
_DASHES = slice(8, 24, 5)


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


def _sized(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


# -- reading ---------------------------------------------------------------------------------


def unpack(record: bytes) -> Packed:
    """Return the parts of a stored record; raises UnknownRecord if the bytes are not one."""
    inline, started = b"", 0
    try:
        format_, state, flags, version, fingerprint, uid, kind, generation, created_s, length = (
            HEAD.unpack_from(record)
        )
        at = HEAD.size + length
        name, text = record[HEAD.size : at].decode(), uuid_text(uid)
        numbers = (1, created_s * 1_000_000)
        if flags & NUMBERED:
            numbers, at = NUMBERS.unpack_from(record, at), at + NUMBERS.size
        if flags & _RULE_INLINE:
            inline, at = _text_at(record, at)
        if flags & _UID_TEXT:
            uid, at = _text_at(record, at)
            text = uid.decode()
        own, at = own_parts(record, flags, at)
        if flags & _COUNTED:
            (started,) = _COUNT.unpack_from(record, at)
            at += _COUNT.size
        if format_ != FORMAT or flags > _ALL_FLAGS or at != len(record):
            raise _unknown(record)
        return Packed(
            state=State(state),
            timing_version=points.TimingVersion(version),
            uid=text,
            generation=generation,
            timing_generation=numbers[0],
            created_us=created_s * 1_000_000,
            not_before_us=numbers[1],
            kind=kind,
            inline=inline,
            name=name,
            started=started,
            fingerprint=fingerprint,
            once_us=own.once_us,
            payload=own.text,
            payload_mac=own.mac,
        )
    except (ValueError, struct.error) as error:
        raise _unknown(record) from error


def own_parts(record: bytes, flags: int, at: int) -> tuple[OwnParts, int]:
    """Return a member's instant and payload at this position, and the position after them."""
    once_us, payload, mac = None, b"", b""
    if flags & _ONCE:
        once_us = int.from_bytes(record[at : at + _INSTANT_LENGTH])
        at += _INSTANT_LENGTH
    if flags & _PAYLOAD:
        mac = record[at : at + PAYLOAD_MAC_LENGTH]
        payload, at = _text_at(record, at + PAYLOAD_MAC_LENGTH)
    return OwnParts(once_us, payload, mac), at


def _text_at(record: bytes, at: int) -> tuple[bytes, int]:
    """Return the text at this position, and the position after it."""
    (length,) = _SIZE.unpack_from(record, at)
    end = at + _SIZE.size + length
    return record[at + _SIZE.size : end], end


def fingerprint(record: bytes) -> bytes:
    """Return the fingerprint in a record."""
    return record[_FINGERPRINT]


def readable(record: bytes) -> Packed | None:
    """Return the parts of a stored record; None if the bytes are not one."""
    try:
        return unpack(record)
    except UnknownRecord:
        return None


def kind(record: bytes) -> bytes:
    """Return the digest of a record's kind; raises UnknownRecord if the bytes are not a record."""
    if len(record) < HEAD.size or record[0] != FORMAT:
        raise _unknown(record)
    return record[KIND]


def _unknown(record: bytes) -> UnknownRecord:
    return UnknownRecord(f"definition record of {len(record)} bytes cannot be read")


def uuid_text(uid: bytes) -> str:
    text = uid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_HEX_UID = struct.Struct("8s4s4s4s12s")


def uuid_texts(uids: Sequence[bytes]) -> list[str]:
    """``uuid_text`` of each, in a third of the time; there is at least one."""
    parts = _HEX_UID.iter_unpack(binascii.hexlify(b"".join(uids)))
    return b"\n".join(map(b"-".join, parts)).decode().split("\n")
