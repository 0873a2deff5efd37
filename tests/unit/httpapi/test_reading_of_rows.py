"""Rows of a stream, as they are read beside other requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from duepoint import clock as clocks
from duepoint.httpapi import bulk, calls
from duepoint.schedules.sets import members, setspec

ROWS = 1_000


class SlowReader(members.RowReader):
    """Counts what it has read, and takes a millisecond for a row."""

    def __init__(self) -> None:
        super().__init__(setspec.SetSettings())
        self.read = 0

    def rows(self, lines, *, now_us):
        until = asyncio.get_running_loop().time() + len(lines) / 1_000
        while asyncio.get_running_loop().time() < until:
            pass
        self.read += len(lines)
        return super().rows(lines, now_us=now_us)


def call_of(reader):
    return SimpleNamespace(namespace="shop", owned=SimpleNamespace(reader=reader))


async def test_other_requests_get_their_turns_while_slow_rows_are_read():
    reader = SlowReader()
    lines = [b'{"id": "m%d", "schedule": "@daily"}' % number for number in range(ROWS)]
    lines[750] = b'{"id": "wrong", "schedule": "61 * * * *"}'
    seen: list[int] = []

    async def beat():
        while True:
            seen.append(reader.read)
            await asyncio.sleep(0)

    streams = bulk.Bulk(None, None, None, calls.Turns(), clocks.SystemClock())
    beating = asyncio.create_task(beat())
    batch = await streams.read(call_of(reader), 1, lines)
    beating.cancel()
    assert sorted(set(seen)) == [*range(25, ROWS + 1, 25)]
    assert [row.id for row in batch.rows] == [f"m{n}" for n in range(ROWS) if n != 750]
    assert batch.places == [place for place in range(ROWS) if place != 750]
    assert batch.refused[750][0] == "wrong"
