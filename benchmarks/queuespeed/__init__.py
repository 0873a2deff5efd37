"""The queue measured through its own class: ``claims``, ``chain``, ``calm``, or all of them.

``KIND=redis-server`` chooses another server than Valkey; each part starts its own.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from benchmarks.queuespeed import calm, chain, claims
from benchmarks.report import Figure

PARTS = {"claims": claims.run, "chain": chain.run, "calm": calm.run}


async def run(*parts: str) -> AsyncIterator[Figure]:
    for part in parts or PARTS:
        async for figure in PARTS[part](os.environ.get("KIND", "valkey")):
            yield figure
