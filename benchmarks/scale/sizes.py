"""What a schedule weighs: its packed definition, and all that the server holds for it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import redis

from benchmarks.report import Figure
from tests.support.redisserver import RedisServer

NAME = "scale-bytes"
_BARS = {"valkey": 170, "redis-server": 210}
_SAMPLE = 2_000


def used(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("memory")["used_memory"])


def figures(server: RedisServer, count: int, empty: int) -> Iterator[Figure]:
    with server.client() as client:
        values, encodings = _sample(client)
        memory = client.info("memory")
    case = f"{server.kind}, {count:,} schedules"
    yield Figure(
        benchmark=NAME, figure=f"definition value: {case}", unit="bytes", bar="<= 72",
        value=round(statistics.mean(values), 1), runs=len(values),
        spread=(min(values), max(values)), compared_with=f"buckets are {', '.join(encodings)}",
    )  # fmt: skip
    yield Figure(
        benchmark=NAME, figure=f"definition, point and everything else: {case}", unit="bytes",
        value=round((memory["used_memory"] - empty) / count, 1), bar=f"<= {_BARS[server.kind]}",
        compared_with=f"used_memory {memory['used_memory']:,}, {empty:,} of it before",
    )  # fmt: skip
    yield Figure(
        benchmark=NAME, figure=f"resident of used memory: {case}", unit="", bar="<= 1.5",
        value=round(memory["used_memory_rss"] / memory["used_memory"], 2),
        compared_with=f"resident {memory['used_memory_rss']:,}",
    )  # fmt: skip


def _sample(client: redis.Redis) -> tuple[list[int], list[str]]:
    """Lengths of some definitions, and how their buckets are kept."""
    lengths: list[int] = []
    encodings: set[str] = set()
    for bucket in client.scan_iter(match="*:defs:*", count=1_000):
        encodings.add(client.object("encoding", bucket).decode())
        lengths += map(len, client.hvals(bucket))
        if len(lengths) >= _SAMPLE:
            break
    return lengths, sorted(encodings)
