"""Whether the servers can give the durability that a request asks for.

Asked before the change is made, because a change that is stored cannot be refused. What the
servers have is read at most every few seconds.
"""

from __future__ import annotations

import asyncio

from duepoint.delayqueue.inspection import durability
from duepoint.delayqueue.wire import nodes
from duepoint.httpapi.problems import OperationProblem

_FRESH_SECONDS = 5.0


class Promise:
    """Refuses what the servers cannot promise."""

    def __init__(self, probe: durability.DurabilityProbe) -> None:
        self._probe = probe
        self._known: durability.ServerDurability | None = None
        self._until = float("-inf")
        self._reading = asyncio.Lock()

    async def check(self, safety: nodes.Safety) -> None:
        """Raise Problem DurabilityUnavailable."""
        known = await self._read()
        if safety.on_disk and "aof" not in known.persistence:
            raise _unavailable("aof", "no server has an append-only file (appendonly yes)")
        if safety.replicas > known.replicas:
            wanted = f"replicas={safety.replicas}"
            raise _unavailable(wanted, f"{known.replicas} replicas are connected")

    async def _read(self) -> durability.ServerDurability:
        loop = asyncio.get_running_loop()
        async with self._reading:
            if self._known is None or loop.time() >= self._until:
                self._known = await self._probe.read()
                self._until = loop.time() + _FRESH_SECONDS
            return self._known


def _unavailable(wanted: str, why: str) -> OperationProblem:
    message = f"{wanted} cannot be given: {why}; leave the header out"
    return OperationProblem("DurabilityUnavailable", message, field="Duepoint-Durability")
