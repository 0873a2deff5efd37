"""Other queues beside ours: N jobs that are due at one later second, handled by one worker each.

All run in turn on one server that is emptied before, with a handler that notes the time. ``N`` is
10,000 and ``TURNS`` 3 unless set otherwise. Each peer is installed once, from its own
registry, into a cache folder outside of here; removing that folder undoes it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from benchmarks import report
from benchmarks.queuespeed import claims, place
from benchmarks.report import Figure
from tests.support.redisserver import RedisServer

_COUNT = int(report.number("N", 10_000, 2_000))
_TURNS = int(report.number("TURNS", 3, 1))
_LIMIT_SECONDS = 300
_HERE = Path(__file__).parent
PEERS = {
    "delayq": lambda: [_go(), "delayq"],
    "asynq": lambda: [_go(), "asynq"],
    "bullmq": lambda: ["node", _node()],
}


async def run(*names: str) -> AsyncIterator[Figure]:
    commands = {name: PEERS[name]() for name in names or PEERS}
    rates: dict[str, list[float]] = {name: [] for name in ("ours", *commands)}
    kind = os.environ.get("KIND", "valkey")
    with place.server(kind) as server:
        for turn in range(_TURNS):
            report.say(f"turn {turn + 1}")
            for name, listed in rates.items():
                if name == "ours":
                    listed.append(await _ours(server))
                else:
                    listed.append(await asyncio.to_thread(_peer, server, name, commands[name]))
                report.say(f"  {name}: {listed[-1]:,.0f} jobs/s")
    bench = report.Bench("peers", f"{_COUNT:,} due at once, no-op handler, {kind}")
    for name, listed in rates.items():
        yield bench.median(name, listed, "jobs/s")
    medians = {name: statistics.median(listed) for name, listed in rates.items()}
    ours = medians.pop("ours")
    fastest = max(medians, key=medians.__getitem__)
    ratio = round(ours / medians[fastest], 2)
    yield bench.one("ours, of the fastest peer's", ratio, "ratio", ">= 4", beside=fastest)


async def _ours(server: RedisServer) -> float:
    """Return points a second; each goes to a handler that notes the time."""
    times: list[int] = []
    rate = await claims.rate_of_ours(server, _COUNT, 1, lambda _: times.append(place.now_us()))
    if len(times) != _COUNT:
        raise SystemExit(f"{len(times)} of {_COUNT} points were handled")
    return rate


def _peer(server: RedisServer, name: str, command: list[str]) -> float:
    """Return jobs a second, from the due time until the last job is handled."""
    with server.client() as client:
        client.flushall()
    done = subprocess.run(
        [*command, str(server.port), str(_COUNT)],
        capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
    due_us, *times = map(int, done.stdout.split())
    if len(times) != _COUNT:
        raise SystemExit(f"{name} handled {len(times)} of {_COUNT} jobs")
    return _COUNT / ((max(times) - due_us) / 1e6)


def _folder() -> Path:
    """Return the folder of the peers' programs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "duepoint" / "peers"


def _go() -> str:
    """Return the program with the Go peers; build it if its source is newer."""
    home = _folder() / "go"
    program, sources = home / "peers", _HERE / "go"
    newest = max(each.stat().st_mtime for each in sources.iterdir())
    if not program.exists() or program.stat().st_mtime < newest:
        report.say("building the Go peers")
        shutil.copytree(sources, home, dirs_exist_ok=True)
        _run(["go", "mod", "tidy"], home)
        _run(["go", "build", "-o", str(program), "."], home)
    return str(program)


def _node() -> str:
    """Return the script of the Node peer, copied beside its packages."""
    home = _folder() / "node"
    shutil.copytree(_HERE / "node", home, dirs_exist_ok=True)
    if not (home / "node_modules" / "bullmq").exists():
        report.say("installing BullMQ")
        _run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit"], home)
    return str(home / "bullmq.js")


def _run(command: list[str], where: Path | None = None) -> None:
    subprocess.run(command, cwd=where, check=True, stdout=sys.stderr)
