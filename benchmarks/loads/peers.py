"""The same loads on BullMQ and asynq, each on a Valkey of its own, with a worker that waits.

Their handlers note the time in the worker's own process, where ours sends a webhook to another one;
so theirs do less. asynq keeps the time of a task in whole seconds, and so begins tasks early.
"""

from __future__ import annotations

import asyncio
import collections
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.loads import outcome
from benchmarks.peers import installing
from tests.support.redisserver import RedisServer

PEERS: dict[str, Callable[[], list[str]]] = {
    "BullMQ": lambda: ["node", installing.node()],
    "asynq": lambda: [installing.go(), "asynq"],
}
_LIMIT_SECONDS = 300


async def run(name: str, count: int, within_seconds: int) -> outcome.Outcome:
    """One load on a fresh server."""
    command = PEERS[name]()
    return await asyncio.to_thread(_run, name, command, count, within_seconds * 1000)


def _run(name: str, command: list[str], count: int, within_ms: int) -> outcome.Outcome:
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer("valkey", Path(folder))
        server.start()
        try:
            done = subprocess.run(
                [*command, str(server.port), str(count), str(within_ms)],
                capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False,
            )  # fmt: skip
        finally:
            server.stop()
    if done.returncode != 0:
        raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
    first, *lines = done.stdout.splitlines()
    seen: collections.Counter[int] = collections.Counter()
    late_us = []
    for line in lines:
        number, at_us = map(int, line.split())
        seen[number] += 1
        # Both keep milliseconds at most, so the plan is in milliseconds, too.
        late_us.append(at_us - int(first) - number * within_ms // count * 1000)
    return outcome.measured(late_us, lost=count - len(seen), doubled=sum(seen.values()) - len(seen))
