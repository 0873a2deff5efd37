"""Entries for a user's stream, cut into scripts that stay short.

One script adds at most so many entries and bytes that the server is never held up for long. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from duepoint import errors

Entry = Sequence[bytes | str]

#: About a millisecond of the server's time.
_MOST_ENTRIES = 250
_MOST_BYTES = 256 * 1024


#: Bytes that an entry takes beside its values, about; the names of its fields are stored once.
_OVERHEAD = 32


def size(values: Iterable[bytes | str]) -> int:
    """Bytes that an entry with these values takes, about."""
    return _OVERHEAD + sum(map(len, values))


def parts(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """The entries in their order, in runs for one script each."""
    cut: list[Sequence[Entry]] = []
    first = size = 0
    for index, entry in enumerate(entries):
        length = sum(map(len, entry))
        if index > first and (index - first >= _MOST_ENTRIES or size + length > _MOST_BYTES):
            cut.append(entries[first:index])
            first, size = index, 0
        size += length
    if first < len(entries):
        cut.append(entries[first:])
    return cut


def ids(reply: object, count: int) -> list[str | None]:
    """The ids of one script's entries; an error is a None for each."""
    if isinstance(reply, errors.Bug):
        raise reply
    if isinstance(reply, errors.DuepointError):
        return [None] * count
    if not isinstance(reply, list) or len(reply) != count:
        raise errors.Bug("a stream was given other entries than it was asked to take")
    return [id_.decode() for id_ in reply]
