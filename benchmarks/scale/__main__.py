"""``python -m benchmarks.scale [PART]``: all parts, or the one named.

``N`` schedules are really loaded (a million unless set otherwise; ``SMALL=1`` takes 100,000);
``KIND`` chooses the server (valkey, redis-server). 30 million need some 9 GB of memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable

from benchmarks import report
from benchmarks.queuespeed import place as points_place
from benchmarks.report import Figure
from benchmarks.scale import creating, loading, place, rebuilding, sizes, sweep
from tests.support.redisserver import RedisServer

_SMALL = os.environ.get("SMALL") == "1"
COUNT = int(os.environ.get("N") or ("100000" if _SMALL else "1000000"))
LOADERS = int(os.environ.get("LOADERS", "2"))
#: Of the filling, the part that one process does alone, as the leader would.
_ALONE = 10
PARTS = ("sweep", "creating", "rebuild")


async def run(kind: str, parts: set[str]) -> AsyncIterator[Figure]:
    with points_place.server(kind, "--hash-max-listpack-entries", "512") as server:
        empty = sizes.used(server)
        async with place.queue(server.url, COUNT) as queue:
            for figure in await _load(server):
                yield figure
            for figure in sizes.figures(server, COUNT, empty):
                yield figure
            case = f"{kind}, {COUNT:,} schedules"
            if "sweep" in parts:
                yield await sweep.run(queue, case, COUNT)
            if "creating" in parts:
                for figure in await creating.run(queue, server, case, COUNT, small=_SMALL):
                    yield figure
    if "rebuild" in parts:
        for figure in await rebuilding.run(kind, min(COUNT, 1_000_000)):
            yield figure


async def _load(server: RedisServer) -> list[Figure]:
    report.say(f"{server.kind}: {COUNT:,} schedules are loaded")
    alone = COUNT // _ALONE
    by_one = await loading.load(server, COUNT, 0, alone, processes=1)
    by_all = await loading.load(server, COUNT, alone, COUNT, processes=LOADERS)
    bar = ">= 60000"
    return [
        *loading.figures(f"{server.kind}, by one process, the first {alone:,}", by_one, bar),
        *loading.figures(
            f"{server.kind}, by {LOADERS} processes, the other {COUNT - alone:,}", by_all, bar
        ),
    ]


def _with(part: str) -> Callable[[], report.Figures]:
    return lambda: run(os.environ.get("KIND", "valkey"), {part} if part != "all" else set(PARTS))


if __name__ == "__main__":
    sys.exit(report.measure({part: _with(part) for part in ("all", *PARTS)}, ["all"]))
