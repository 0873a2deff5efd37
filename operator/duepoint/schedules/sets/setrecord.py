"""The record of a ScheduleSet in the queue, which the operator writes and the API reads.

A record is a keyed hash followed by a MessagePack array; the hash covers the set's place and the
array. So a user who can write to Redis but lacks the installation's key can neither raise a limit
nor give a set the target of another one. Pure. Stored: fields are only ever added, with defaults.
"""

from __future__ import annotations

import enum
import hmac
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from duepoint.schedules import points
from duepoint.schedules.sets import setspec

#: Returns the keyed hash of bytes for a namespace.
Mac = Callable[[str, bytes], bytes]


class SetState(enum.StrEnum):
    """Whether the members of a set may fire and change."""

    READY = "Ready"
    SUSPENDED = "Suspended"  # members may change, but none fires
    STALLED = "Stalled"  # the spec is wrong: no member fires or changes
    DELETING = "Deleting"  # members are being removed


class UnknownSetRecord(ValueError):
    """The bytes are not a record that this version can read, or not signed with our key."""


class SetRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A set as it is stored in the queue.

    Attributes:
        generation: metadata.generation this was made from.
        is_managed: its members are kept equal to rows; nothing else may change them.
        spread: bits of an id that spread members within a shard; never changes.
        target: digest of the action's blob; empty if there never was one.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    state: SetState
    spread: int
    target: str
    settings: setspec.SetSettings
    is_managed: bool = False

    @property
    def identity(self) -> points.SetIdentity:
        return points.SetIdentity(self.uid, self.namespace, self.name, self.spread)

    @property
    def place(self) -> str:
        """``namespace/name``, under which the record is stored."""
        return f"{self.namespace}/{self.name}"


_MAC_LENGTH = 16
_decoder = msgspec.msgpack.Decoder(SetRecord)


def pack(record: SetRecord, mac: Mac) -> bytes:
    """Return the value to store under ``record.place``."""
    content = msgspec.msgpack.encode(record)
    return _signature(record.place, content, mac) + content


def unpack(place: str, data: bytes, mac: Mac) -> SetRecord:
    """Return the record stored under a place; raises UnknownSetRecord."""
    signature, content = data[:_MAC_LENGTH], data[_MAC_LENGTH:]
    if not hmac.compare_digest(signature, _signature(place, content, mac)):
        raise UnknownSetRecord(f"the record of the ScheduleSet {place} was signed with another key")
    try:
        return _decoder.decode(content)
    except msgspec.MsgspecError as error:
        raise UnknownSetRecord(f"the record of the ScheduleSet {place} cannot be read") from error


def _signature(place: str, content: bytes, mac: Mac) -> bytes:
    namespace, _, name = place.partition("/")
    return mac(namespace, f"scheduleset {name}\n".encode() + content)[:_MAC_LENGTH]


# -- the entry of a set in each shard --------------------------------------------------------------

_LETTERS = {
    SetState.READY: "o",
    SetState.SUSPENDED: "p",
    SetState.STALLED: "p",
    SetState.DELETING: "d",
}


class SetEntry(NamedTuple):
    """The entry of a set in a shard: whether its members may fire, and their target."""

    letter: str
    target: str

    @property
    def is_paused(self) -> bool:
        return self.letter == "p"

    @property
    def is_gone(self) -> bool:
        return self.letter == "d"


def entry_text(record: SetRecord) -> str:
    """Return the text of a set's entry."""
    managed = "m:" if record.is_managed else ""
    return f"{_LETTERS[record.state]}{record.target}:{managed}{record.settings.retention_seconds}"


def parse_entry(entry: bytes) -> SetEntry:
    """Return the entry in a text; an entry that cannot be read is paused."""
    letter, rest = entry[:1], entry[1:].partition(b":")[0]
    if letter not in (b"o", b"p", b"d") or not rest.isascii():
        return SetEntry("p", "")
    return SetEntry(letter.decode(), rest.decode())
