"""Rows of a stream, as they are read beside other requests."""

from __future__ import annotations

import asyncio

from duepoint.httpapi import bulk
from duepoint.schedules.sets import members, setspec

ROWS = 1_000


class SlowReader(members.RowReader):
    """Counts what it has read, and takes a millisecond for a row."""

    def __init__(self) -> None:
        super().__init__(setspec.SetSettings())
        self.read = 0

    def row(self, text, *, now_us):
        until = asyncio.get_running_loop().time() + 1 / 1_000
        while asyncio.get_running_loop().time() < until:
            pass
        self.read += 1
        return super().row(text, now_us=now_us)


async def test_other_requests_get_their_turns_while_slow_rows_are_read():
    reader = SlowReader()
    lines = [b'{"id": "m%d", "schedule": "@daily"}' % number for number in range(ROWS)]
    lines[750] = b'{"id": "wrong", "schedule": "61 * * * *"}'
    seen: list[int] = []

    async def beat():
        while True:
            seen.append(reader.read)
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    rows = await bulk.read(reader, lines, 0)
    beating.cancel()
    assert len(set(seen)) > ROWS // 25  # ten milliseconds at a time
    refused = rows.pop(750)
    assert isinstance(refused, members.RowError)
    assert refused.id == "wrong"
    assert [row.id for row in rows] == [f"m{n}" for n in range(ROWS) if n != 750]
