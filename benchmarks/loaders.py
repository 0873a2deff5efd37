"""Processes that fill a server side by side, each with a part of what is numbered.

A loader is ``python -m MODULE URL COUNT FIRST LAST``: it prints a line when it is connected, reads
one, puts its part, and prints ``{"cpu": seconds}``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loading:
    """What all loaders took together.

    Attributes:
        seconds: from the word to the end of the last one.
        cpu: seconds of CPU of all of them.
    """

    seconds: float
    cpu: float


async def start(
    module: str, url: str, count: int, first: int, last: int, *, processes: int
) -> list[asyncio.subprocess.Process]:
    """Loaders that share ``first`` to ``last`` of ``count``; all are connected and wait."""
    share = -(-(last - first) // processes)
    return [
        await _started(module, url, count, begin, min(last, begin + share))
        for begin in range(first, last, share)
    ]


async def run(started: list[asyncio.subprocess.Process]) -> Loading:
    """Let them go, and wait until the last one has ended; raises RuntimeError if one failed."""
    began = time.perf_counter()
    said = [out for out, _ in await asyncio.gather(*(one.communicate(b"go\n") for one in started))]
    seconds = time.perf_counter() - began
    if any(one.returncode for one in started):
        raise RuntimeError("a loader failed")
    return Loading(seconds, sum(json.loads(out)["cpu"] for out in said))


async def _started(
    module: str, url: str, count: int, first: int, last: int
) -> asyncio.subprocess.Process:
    """A loader that waits for a word."""
    command = ["-m", module, url, *map(str, (count, first, last))]
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=pipe, stdout=pipe
    )
    assert started.stdout is not None
    await started.stdout.readline()
    return started
