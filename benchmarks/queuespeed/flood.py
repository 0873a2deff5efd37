"""A million points due in one second: do other clients notice?

One worker process empties them through ``DelayQueue`` while another client, a process of its own,
sends PING every two milliseconds. The server notes every command that takes it 5 ms or more
(SLOWLOG; scripts included, no network in it). Memory is that of the emptying process.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator

import redis

from benchmarks import report
from benchmarks.queuespeed import claims, place
from benchmarks.report import Figure
from tests.support.redisserver import RedisServer

NAME = "flood"
_SLOW_US = 5_000
_PINGS = (
    "import json,redis,sys,time\n"
    "c=redis.Redis(port=int(sys.argv[1]),protocol=2)\n"
    "took=[]; print('ready',flush=True)\n"
    "while not c.exists('flood:over'):\n"
    "  b=time.perf_counter(); c.ping()\n"
    "  took.append((time.perf_counter()-b)*1000); time.sleep(.002)\n"
    "print(json.dumps(took))\n"
)


async def run(kind: str, *, count: int = 1_000_000) -> list[Figure]:
    with place.server(kind, "--slowlog-log-slower-than", str(_SLOW_US)) as server:
        async with place.queue(server, 1) as queue:
            with server.client() as client:
                shard = place.names(await queue.layouts.read(), 0)
                report.say(f"{kind}: {count:,} points due in one second")
                second_us = place.now_us() - 2_000_000
                for _ in range(20):
                    at_us = second_us + random.randint(0, 999_999)
                    place.put_points(client, shard, 4, count // 20, at_us)
                client.config_resetstat()
                client.slowlog_reset()
                pinging = _ping(server)
                before = _rss()
                burnt = _cpu_seconds(client)
                emptied = await claims.empty(queue)
                grown = _rss() - before
                client.set("flood:over", 1)
                took = json.loads(pinging.communicate()[0])
                burnt = _cpu_seconds(client) - burnt
                slow = client.slowlog_len()
                calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    case = f"{kind}, {emptied:,} points"
    return [_mean_cpu(case, burnt, calls), *_figures(case, took, slow, calls, grown)]


def _ping(server: RedisServer) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PINGS, str(server.port)]
    pinging = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert pinging.stdout is not None
    pinging.stdout.readline()
    return pinging


def _rss() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def _cpu_seconds(client: redis.Redis) -> float:
    said = client.info("cpu")
    return float(said["used_cpu_sys_main_thread"]) + float(said["used_cpu_user_main_thread"])


def _mean_cpu(case: str, burnt: float, calls: int) -> Figure:
    """SLOWLOG counts the time for which the server was not scheduled, too; this does not."""
    return Figure(
        benchmark=NAME, figure=f"CPU time of the server's main thread, of a script: {case}",
        value=round(burnt / calls * 1000, 3), unit="ms", runs=calls,
    )  # fmt: skip


def _figures(case: str, took: list[float], slow: int, calls: int, grown: float) -> Iterator[Figure]:
    yield Figure(
        benchmark=NAME, figure=f"scripts of 5 ms or more: {case}", value=slow, unit="scripts",
        bar=f"<= {calls / 10_000:.2f}", runs=calls,
    )  # fmt: skip
    yield Figure(
        benchmark=NAME, figure=f"another client's PING p99: {case}", unit="ms", bar="<= 10",
        value=round(report.percentile(took, 0.99), 3), runs=len(took),
        spread=(round(min(took), 3), round(max(took), 3)),
    )  # fmt: skip
    yield Figure(benchmark=NAME, figure=f"growth of the worker's peak memory: {case}",
                 value=round(grown, 1), unit="MB", bar="<= 20")  # fmt: skip
