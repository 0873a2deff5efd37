"""``python -m benchmarks.members [PART ...]``: all parts, or those named.

``deletion`` loads ``COUNT`` members (a million unless set otherwise; ``SMALL=1`` takes 50,000) and
deletes their set; ``full`` fires, creates and reads beside so many for ``SECONDS``. ``KIND``
chooses the server (valkey, redis-server). Ten million members need some 2 GB of memory.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import AsyncIterator

from benchmarks import report
from benchmarks.members import deletion, full, loading, place
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from duepoint.delayqueue import delayqueue
from tests.support.redisserver import RedisServer

_SMALL = os.environ.get("SMALL") == "1"
COUNT = int(os.environ.get("COUNT") or ("50000" if _SMALL else "1000000"))
LOADERS = int(os.environ.get("LOADERS", "2"))


@contextlib.asynccontextmanager
async def _empty_set(kind: str) -> AsyncIterator[tuple[RedisServer, delayqueue.DelayQueue]]:
    with points_place.server(kind, "--hash-max-listpack-entries", "512") as server:
        async with place.queue(server.url, COUNT) as queue:
            await place.store(queue, COUNT)
            report.say(f"{kind}: {COUNT:,} members are loaded")
            yield server, queue


async def _deletion(kind: str) -> AsyncIterator[Figure]:
    async with _empty_set(kind) as (server, queue):
        for figure in await loading.load(server, COUNT, LOADERS):
            yield figure
        for figure in await deletion.run(queue, server, COUNT, small=_SMALL):
            yield figure


async def _full(kind: str) -> AsyncIterator[Figure]:
    rate, seconds = (1_000, 10.0) if _SMALL else (10_000, 600.0)
    seconds = float(os.environ.get("SECONDS") or seconds)
    async with _empty_set(kind) as (server, queue):
        for figure in await loading.load(server, COUNT, LOADERS):
            yield figure
        for figure in await full.run(queue, server, COUNT, rate=rate, seconds=seconds):
            yield figure


PARTS = {"deletion": _deletion, "full": _full}
_KIND = os.environ.get("KIND", "valkey")

if __name__ == "__main__":
    sys.exit(report.measure({name: functools.partial(part, _KIND) for name, part in PARTS.items()}))
