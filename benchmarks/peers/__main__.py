"""``python -m benchmarks.peers [NAME ...]``: every peer, or those named, beside ours.

One protocol: the server is emptied, N jobs are put in that are all due at one later second, one
worker process of each peer handles them with a handler that notes the time. Each runs alone, one
after the other, on one server; a row says what share of ours it reached in this very run. ``N`` is
10,000 unless set otherwise, ``TURNS`` 3.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator

import uvloop

from benchmarks import report
from benchmarks.peers import installing
from benchmarks.queuespeed import claims, place
from benchmarks.report import Figure
from tests.support.redisserver import RedisServer

_COUNT = int(os.environ.get("N", "10000"))
_TURNS = int(os.environ.get("TURNS", "3"))
_LIMIT_SECONDS = 300
#: Ours against the fastest of the others.
_BAR = ">= 4"


PEERS: dict[str, Callable[[], list[str]]] = {
    "delayq": lambda: [installing.go(), "delayq"],
    "asynq": lambda: [installing.go(), "asynq"],
    "bullmq": lambda: ["node", installing.node()],
}


def main(names: list[str]) -> int:
    unknown = set(names) - set(PEERS)
    if unknown:
        report.say(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
        return 2
    kind = os.environ.get("KIND", "valkey")
    commands = {name: PEERS[name]() for name in names or PEERS}
    print(report.environment(), flush=True)
    print(json.dumps({"peers": {name: installing.versions(name) for name in commands}}), flush=True)
    rates: dict[str, list[float]] = {"ours": []}
    with place.server(kind) as server:
        for turn in range(_TURNS):
            report.say(f"turn {turn + 1}")
            _note(rates, "ours", uvloop.run(_ours(server)))
            for name, command in commands.items():
                _note(rates, name, _peer(server, name, command, _COUNT))
    lines = list(_figures(kind, rates))
    for figure in lines:
        print(figure.line(), flush=True)
    return 1 if os.environ.get("CHECK") == "1" and lines[-1].holds is False else 0


def _note(rates: dict[str, list[float]], name: str, rate: float) -> None:
    rates.setdefault(name, []).append(rate)
    report.say(f"  {name}: {rate:,.0f} jobs/s")


async def _ours(server: RedisServer) -> float:
    """From the due to the last settlement, each point handed to a handler that notes the time."""
    times: list[int] = []
    with server.client() as client:
        client.flushall()
        async with place.queue(server, 1) as queue:
            shard = place.names(await queue.layouts.read(), 0)
            due_us = (place.now_us() // 1_000_000 + 2) * 1_000_000
            place.put_points(client, shard, 1, _COUNT, due_us)
            await asyncio.sleep((due_us - place.now_us()) / 1e6)
            left = _COUNT
            while left > 0:
                left -= await claims.empty(queue, lambda _: times.append(place.now_us()))
            if len(times) != _COUNT:
                raise SystemExit(f"{len(times)} of {_COUNT} points were handled")
            return _COUNT / ((place.now_us() - due_us) / 1e6)


def _peer(server: RedisServer, name: str, command: list[str], count: int) -> float:
    """Jobs a second from the due to the last one handled."""
    with server.client() as client:
        client.flushall()
    where = [str(server.port), str(count)]
    done = subprocess.run(
        [*command, *where], capture_output=True, text=True, timeout=_LIMIT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
    due_us, *times = map(int, done.stdout.split())
    if len(times) != count:
        raise SystemExit(f"{name} handled {len(times)} of {count} jobs")
    return count / ((max(times) - due_us) / 1e6)


def _figures(kind: str, rates: dict[str, list[float]]) -> Iterator[Figure]:
    medians = {name: statistics.median(listed) for name, listed in rates.items()}
    for name, listed in rates.items():
        yield Figure(
            benchmark="peers", figure=f"{name}: due at once, no-op handler, {kind}", unit="jobs/s",
            value=round(medians[name]), spread=(round(min(listed)), round(max(listed))),
            runs=len(listed),
            compared_with=json.dumps({
                "of ours": round(medians[name] / medians["ours"], 4),
                "turns": [round(rate) for rate in listed],
            }),
        )  # fmt: skip
    fastest = max((name for name in medians if name != "ours"), key=medians.__getitem__)
    yield Figure(
        benchmark="peers", figure="ours against the fastest peer", unit="ratio", bar=_BAR,
        value=round(medians["ours"] / medians[fastest], 2), runs=len(rates["ours"]),
        compared_with=fastest,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
