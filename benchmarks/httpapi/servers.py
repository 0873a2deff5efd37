"""What the HTTP API could stand on: our server beside three frameworks, one PUT and one GET.

Each candidate is a process on the first processor, vegeta on the second; they take turns, so that a
slow minute of the machine is one for all of them. What counts is the CPU time of a request: rates
depend on the load generator, too.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from benchmarks import report, vegeta
from benchmarks.peers import installing
from benchmarks.report import Figure
from tools.devcluster import ports

_CANDIDATES = ("ours", "starlette", "litestar", "aiohttp")
_SCRIPT = Path(__file__).with_name("candidates.py")
_WORKERS = 32
_MEMBERS = 2_000
_HEADERS = {"Authorization": "Bearer " + "x" * 900, "Content-Type": "application/json"}
_START_SECONDS = 30


async def run(*, small: bool) -> list[Figure]:
    """Figures of every candidate."""
    turns, seconds = (1, 2.0) if small else (5, 4.0)
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for turn in range(turns):
        report.say(f"turn {turn + 1} of {turns}")
        for name in _CANDIDATES:
            for method, figures in (await _turn(name, seconds)).items():
                found.setdefault((name, method), []).append(figures)
    return list(_figures(found))


async def _turn(name: str, seconds: float) -> dict[str, tuple[float, float]]:
    """By method: CPU microseconds of a request, and requests a second."""
    port = ports.any_free()
    interpreter = sys.executable if name == "ours" else installing.python("http-servers")
    process = await asyncio.create_subprocess_exec(
        "taskset", "-c", "0", interpreter, str(_SCRIPT), name, str(port)
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            base = f"http://127.0.0.1:{port}/v1/namespaces/shop/schedulesets/reminders/schedules"
            await _wait_until_served(base)
            figures, members = {}, _MEMBERS
            for method in ("PUT", "GET"):
                file = Path(folder) / method
                vegeta.write(file, _targets(method, base, members))
                await _attack(file, 0.5)  # to warm it up
                before = _cpu_seconds(process.pid)
                attack = await _attack(file, seconds)
                used = _cpu_seconds(process.pid) - before
                members = min(members, attack.requests)  # a slow machine does not put them all
                if attack.refused:
                    raise SystemExit(f"{name} answered {dict(attack.statuses)}")
                figures[method] = used / attack.requests * 1e6, attack.throughput
            return figures
        finally:
            process.kill()
            await process.wait()


def _cpu_seconds(pid: int) -> float:
    """Of the only thread that works, exactly: the clock of other counters has 10 ms."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def _attack(file: Path, seconds: float) -> vegeta.Attack:
    return await vegeta.attack(file, seconds, headers=_HEADERS, workers=_WORKERS, processor=1)


def _targets(method: str, base: str, members: int) -> Iterator[vegeta.Target]:
    for number in range(members):
        body = b""
        if method == "PUT":
            body = b'{"at":"2090-12-24T18:00:00Z","payload":{"customer":%d}}' % number
        yield vegeta.Target(method, f"{base}/customer:{number}", body)


async def _wait_until_served(url: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    async with aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/a"):
                    return
            except aiohttp.ClientConnectionError:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.1)


def _figures(found: dict[tuple[str, str], list[tuple[float, float]]]) -> Iterator[Figure]:
    for (name, method), turns in found.items():
        costs = [cost for cost, _ in turns]
        rates = [rate for _, rate in turns]
        cost, own = statistics.median(costs), statistics.median(c for c, _ in found["ours", method])
        yield Figure(
            benchmark="http-servers", figure=f"{name}: CPU of a {method}", value=round(cost, 1),
            unit="us", spread=(round(min(costs), 1), round(max(costs), 1)), runs=len(turns),
            compared_with=f"{cost / own:.2f} times ours; {statistics.median(rates):,.0f}/s",
        )  # fmt: skip
