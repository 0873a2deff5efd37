"""What one namespace may have in Duepoint's own Redis, and how its parts are shared out.

The Schedules of a namespace lie in four shards (``keys.SHARDS_OF_A_NAMESPACE``), the members of its
sets in all of them, and shards may lie on different servers; so each shard keeps the share of its
part, in the script that buries, and members have a quota of their own. A user's
stream is a key of its own, on a server of its own: each stream keeps the share of one of as many
streams as a namespace may have. No share ever waits for another server, or for a leader. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.delayqueue import keys

#: Dead letters that one shard keeps of all namespaces.
SHARD_LETTERS = 10_000
_MIB = 1024 * 1024
#: Bytes of an entry of a stream beside its values, about; the names of its fields are stored once.
_ENTRY_OVERHEAD = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What one namespace may have.

    Attributes:
        letters, letter_bytes: dead letters of Schedules, and the bytes that they take; as many
            again of members of sets.
        streams, stream_bytes: streams of users, and the bytes that all of them may take.
    """

    letters: int = 10_000
    letter_bytes: int = 16 * _MIB
    streams: int = 32
    stream_bytes: int = 256 * _MIB

    @property
    def of_stream(self) -> int:
        """Bytes that one stream keeps, about."""
        return max(1, self.stream_bytes // self.streams)

    def of_shard(self, shards: int, *, of_members: bool = False) -> Share:
        """What one shard keeps of the dead letters of one namespace, with so many shards."""
        parts = shards if of_members else min(shards, keys.SHARDS_OF_A_NAMESPACE)
        return Share(
            entries=max(1, self.letters // parts), bytes=max(1, self.letter_bytes // parts)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Dead letters of one namespace's Schedules, or of its members, in one shard."""

    entries: int
    bytes: int


#: The defaults.
USUAL = Quotas()


def namespace_of(group: bytes) -> str:
    """Of a group in which letters are counted: those of members are a group of their own."""
    return group.decode(errors="replace").removesuffix("/members")


def entry_bytes(values: Iterable[bytes | str]) -> int:
    """Bytes that an entry with these values takes in a stream, about."""
    return _ENTRY_OVERHEAD + sum(map(len, values))
