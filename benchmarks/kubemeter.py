"""CPU, memory and stalls of processes while something goes on.

Memory is the most that was seen, CPU the time used. A stall is how long ``/healthz`` of a process
was not answered: its event loop answers it, so a loop that does something else for long is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import aiohttp

from benchmarks import scene

_EVERY_SECONDS = 0.05


@dataclass(slots=True)
class Use:
    """What one process used."""

    cpu_seconds: float = 0.0
    most_megabytes: float = 0.0
    last_megabytes: float = 0.0
    stalls_ms: list[float] = field(default_factory=list)

    @property
    def worst_stall_ms(self) -> float:
        return max(self.stalls_ms, default=0.0)


@contextlib.asynccontextmanager
async def metered(
    pids: Mapping[str, int], probed: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Use]]:
    """Name -> Use, complete when the block has ended; ``probed`` are addresses of ``/healthz``."""
    uses = {name: Use() for name in pids}
    before = {name: scene.cpu_seconds(pid) for name, pid in pids.items()}
    async with aiohttp.ClientSession() as session:
        tasks = [asyncio.create_task(_watch_memory(pids, uses))]
        tasks += [
            asyncio.create_task(_probe(session, url, uses[name]))
            for name, url in (probed or {}).items()
        ]
        try:
            yield uses
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for name, pid in pids.items():
                _note(pid, uses[name])
                uses[name].cpu_seconds = scene.cpu_seconds(pid) - before[name]


async def _watch_memory(pids: Mapping[str, int], uses: dict[str, Use]) -> None:
    while True:
        for name, pid in pids.items():
            _note(pid, uses[name])
        await asyncio.sleep(1)


def _note(pid: int, use: Use) -> None:
    use.last_megabytes = scene.rss_megabytes(pid)
    use.most_megabytes = max(use.most_megabytes, use.last_megabytes)


async def _probe(session: aiohttp.ClientSession, url: str, use: Use) -> None:
    while True:
        started = time.monotonic()
        with contextlib.suppress(aiohttp.ClientError):
            async with session.get(url) as answer:
                await answer.read()
        use.stalls_ms.append((time.monotonic() - started) * 1000)
        await asyncio.sleep(_EVERY_SECONDS)
