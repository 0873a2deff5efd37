"""Rows of a stream, as they are read beside other requests."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from duepoint.httpapi import bulk, calls
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


CALL = SimpleNamespace(namespace="shop", shared=SimpleNamespace(turns=calls.Turns()))


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
    batch = await bulk.read(CALL, reader, 1, lines, 0)
    beating.cancel()
    assert sorted(set(seen)) == [*range(25, ROWS + 1, 25)]
    refused = batch.rows.pop(750)
    assert isinstance(refused, members.RowError)
    assert refused.id == "wrong"
    assert [row.id for row in batch.rows] == [f"m{n}" for n in range(ROWS) if n != 750]
