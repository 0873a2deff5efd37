"""Members of a set by the million: loaded, fired beside, deleted.

``deletion`` loads ``COUNT`` members and deletes their set beside firings; ``full`` fires, creates
and reads beside so many for ``SECONDS``. ``KIND=redis-server`` chooses another server than Valkey.
Ten million members need some 2 GB of memory.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from benchmarks import report
from benchmarks.members import deletion, full, loading, place
from benchmarks.queuespeed import place as queueplace
from benchmarks.report import Figure

COUNT = int(report.number("COUNT", 1_000_000, 50_000))
PARTS = {"deletion": deletion.run, "full": full.run}


async def run(*parts: str) -> AsyncIterator[Figure]:
    kind = os.environ.get("KIND", "valkey")
    for part in parts or PARTS:
        # Hashes of this length stay compact, as the operator asks of a server.
        with queueplace.server(kind, "--hash-max-listpack-entries", "512") as server:
            async with place.queue(server.url, COUNT) as queue:
                await place.store(queue, COUNT)
                for figure in await loading.load(server, COUNT):
                    yield figure
                async for figure in PARTS[part](queue, server, COUNT):
                    yield figure
