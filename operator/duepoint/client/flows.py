"""Rows as users have them, in any kind of iterable, as lines in batches. Pure.

The only part of the client that is written twice, because an asynchronous caller may give rows of
either kind.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator

from duepoint.client import batches, members

Row = members.MemberRow | str | bytes
Rows = Iterable[members.MemberRow] | Iterable[str] | Iterable[bytes]
AsyncRows = Rows | AsyncIterable[members.MemberRow] | AsyncIterable[str] | AsyncIterable[bytes]


def in_batches(rows: Rows) -> Iterator[list[bytes]]:
    """Lines to send together; bytes are lines already."""
    return batches.batches(_line(row) for row in rows)


async def async_in_batches(rows: AsyncRows) -> AsyncIterator[list[bytes]]:
    """The same of rows that come from either kind of iterable."""
    if isinstance(rows, Iterable):
        for batch in in_batches(rows):
            yield batch
        return
    open_batch = batches.Batch()
    async for row in rows:
        if ended := open_batch.add(_line(row)):
            yield ended
    if last := open_batch.take():
        yield last


def _line(row: Row) -> bytes:
    return row.strip() if isinstance(row, bytes) else batches.line_of(row)
