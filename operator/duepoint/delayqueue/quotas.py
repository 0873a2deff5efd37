"""The quotas of one namespace in Duepoint's own Redis, and their division among shards. Pure.

The Schedules of a namespace are in four shards (``keys.SHARDS_OF_A_NAMESPACE``), the members of a
set in all shards, and shards may be on different servers. So each shard enforces its share of the
quota of a log, in the script that adds to it. A user's stream is a key that may be on any server:
each stream gets an equal share of the bytes, as if the namespace had all the streams that it may.
Enforcing a share never waits for another server, or for a leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from duepoint.delayqueue import keys

_MIB = 1024 * 1024
#: About how many bytes a stream's entry takes beside its values; field names are stored once.
_ENTRY_OVERHEAD = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The quotas of one namespace.

    Attributes:
        letter_bytes: most bytes of its Schedules' dead letters; the same again for each set.
        streams, stream_bytes: most streams of users, and most bytes of all of them together.
    """

    letter_bytes: int = 16 * _MIB
    streams: int = 32
    stream_bytes: int = 256 * _MIB

    @property
    def of_stream(self) -> int:
        """About how many bytes one stream keeps."""
        return max(1, self.stream_bytes // self.streams)

    def of_log(self, shards: int, *, is_of_set: bool) -> int:
        """Return how many bytes the log of a lane may take in one of this many shards."""
        parts = shards if is_of_set else min(shards, keys.SHARDS_OF_A_NAMESPACE)
        return max(1, self.letter_bytes // parts)


#: The default quotas.
USUAL = Quotas()


def entry_bytes(values: Iterable[bytes | str]) -> int:
    """Return about how many bytes an entry with these values takes in a stream."""
    return _ENTRY_OVERHEAD + sum(map(len, values))
