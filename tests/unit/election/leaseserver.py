"""One Lease on an imaginary API server: exact compare-and-swap behind an unreliable network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from duepoint.kube import leases

ResultT = TypeVar("ResultT")


class Fault(Enum):
    NONE = "answered"
    REFUSED = "refused before it was done"
    ANSWER_LOST = "done, and the answer lost"
    HANGS = "never answered"
    DONE_LATE = "done long after the caller gave up"


@dataclass
class LeaseServer:
    """What is stored. Writers see each other's writes at once, or not at all."""

    lease: leases.Lease | None = None
    version: int = 0
    writes: list[leases.Lease] = field(default_factory=list)

    def put(self, lease: leases.Lease) -> leases.Lease:
        self.version += 1
        self.lease = replace(lease, version=str(self.version))
        self.writes.append(self.lease)
        return self.lease

    def create(self, lease: leases.Lease) -> leases.Lease | None:
        return None if self.lease is not None else self.put(lease)

    def update(self, lease: leases.Lease) -> leases.Lease | None:
        if self.lease is None or self.lease.version != lease.version:
            return None
        return self.put(lease)


class Connection:
    """One elector's way to the server. ``plan`` says what becomes of each call."""

    def __init__(
        self,
        server: LeaseServer,
        *,
        plan: Callable[[str], Fault] = lambda _verb: Fault.NONE,
        error: Callable[[], BaseException] = lambda: OSError("connection reset"),
        rng: random.Random | None = None,
    ) -> None:
        self.server = server
        self.plan = plan
        self.error = error
        self.calls: list[str] = []
        self._random = rng
        self._late: set[asyncio.Task[None]] = set()

    async def get(self) -> leases.Lease | None:
        return await self._exchange("get", lambda: self.server.lease)

    async def create(self, lease: leases.Lease) -> leases.Lease | None:
        return await self._exchange("create", lambda: self.server.create(lease))

    async def update(self, lease: leases.Lease) -> leases.Lease | None:
        return await self._exchange("update", lambda: self.server.update(lease))

    async def _exchange(self, verb: str, do: Callable[[], ResultT]) -> ResultT:
        self.calls.append(verb)
        fault = self.plan(verb)
        await self._travel()
        if fault is Fault.REFUSED:
            raise self.error()
        if fault is Fault.HANGS:
            await asyncio.Event().wait()
        if fault is Fault.DONE_LATE:
            self._do_late(do)
            await asyncio.Event().wait()
        result = do()
        await self._travel()
        if fault is Fault.ANSWER_LOST:
            raise self.error()
        return result

    async def _travel(self) -> None:
        await asyncio.sleep(self._random.uniform(0, 1.5) if self._random else 0.01)

    def _do_late(self, do: Callable[[], object]) -> None:
        async def later() -> None:
            await asyncio.sleep(self._random.uniform(1, 30) if self._random else 8.0)
            do()

        task = asyncio.create_task(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)
