"""What one namespace may have in Duepoint's own Redis, and how its parts are shared out.

The Schedules of a namespace lie in four shards (``keys.SHARDS_OF_A_NAMESPACE``), the members of a
set in all of them, and shards may lie on different servers; so each shard keeps the share of its
part of a log, in the script that adds to it. A user's stream is a key of its own, on a server of
its own: each stream keeps the share of one of as many streams as a namespace may have. No share
ever waits for another server, or for a leader. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.delayqueue import keys

_MIB = 1024 * 1024
#: Bytes of an entry of a stream beside its values, about; the names of its fields are stored once.
_ENTRY_OVERHEAD = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What one namespace may have.

    Attributes:
        letter_bytes: that dead letters of its Schedules may take; as many again for each set.
        streams, stream_bytes: streams of users, and the bytes that all of them may take.
    """

    letter_bytes: int = 16 * _MIB
    streams: int = 32
    stream_bytes: int = 256 * _MIB

    @property
    def of_stream(self) -> int:
        """Bytes that one stream keeps, about."""
        return max(1, self.stream_bytes // self.streams)

    def of_log(self, shards: int, *, is_of_set: bool) -> int:
        """Bytes that the log of a lane may take in one of so many shards."""
        parts = shards if is_of_set else min(shards, keys.SHARDS_OF_A_NAMESPACE)
        return max(1, self.letter_bytes // parts)


#: The defaults.
USUAL = Quotas()


def entry_bytes(values: Iterable[bytes | str]) -> int:
    """Bytes that an entry with these values takes in a stream, about."""
    return _ENTRY_OVERHEAD + sum(map(len, values))
