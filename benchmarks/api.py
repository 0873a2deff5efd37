"""The HTTP API under load, beside 5,000 firings a second of another set on the same two cores.

Operator, worker and API are processes with the chart's rights, on a control plane and a Valkey of
their own; vegeta sends. The parts: new members without end in streams of
10,000 rows, single PUTs under new ids, reads of these. Rows count when the set reports them.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks import report, scene, vegeta
from benchmarks.report import Figure
from tests.support import stack as stacks

_BENCH = report.Bench("api")
_FIRINGS = int(report.number("RATE", 5_000, 500))  # a second
_SECONDS = int(report.number("SECONDS", 20, 2))  # of each part
_PERIOD_SECONDS = 20
_ROWS = 10_000  # of a stream
_STREAMS = 4  # at a time
_WORKERS = 64
#: A little more than the bars, because the last answer counts, too.
_CREATES, _READS = 2_550, 4_100


@dataclass(slots=True)
class _Place:
    """An installation with two sets: ``busy``, which fires, and ``loaded``."""

    stack: stacks.Stack
    api: stacks.Process
    pids: Mapping[str, int]
    folder: Path
    token: str
    created: int = 0  # by single requests

    def cpu_seconds(self) -> dict[str, float]:
        """Return the CPU time so far, by process; ``vegeta``: all its processes that have ended."""
        used = {name: scene.cpu_seconds(pid) for name, pid in self.pids.items()}
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {**used, "vegeta": ended.ru_utime + ended.ru_stime}

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def url(self, name: str = "loaded") -> str:
        path = f"/v1/namespaces/{self.stack.namespace}/schedulesets/{name}"
        return f"{self.stack.api_url}{path}"

    async def members(self) -> int:
        async with (
            aiohttp.ClientSession(headers=self.headers) as session,
            session.get(self.url()) as answer,
        ):
            return int((await answer.json())["members"])

    async def fired(self) -> int:
        """Return the number of events of ``busy`` so far."""
        key = f"dp:stream:{self.stack.namespace}:busy"

        def count() -> int:
            with self.stack.redis.client() as server:
                return int(server.xinfo_stream(key)["entries-added"])

        return await asyncio.to_thread(count)


async def run() -> AsyncIterator[Figure]:
    async with _installed() as place:
        await _make_busy(place)
        async with scene.metered({"api": place.api.pid}) as uses:
            for part in (_bulk, _creates, _reads):
                fired, began = await place.fired(), time.monotonic()
                before = place.cpu_seconds()
                found = await part(place)
                rate = (await place.fired() - fired) / (time.monotonic() - began)
                used = {name: cpu - before[name] for name, cpu in place.cpu_seconds().items()}
                for figure in found.figures(used, f"beside {rate:,.0f} firings/s"):
                    yield figure
        most = round(uses["api"].most_megabytes, 1)
        yield _BENCH.one("memory of the API process, at most", most, "MB", "<= 250")


@dataclass(slots=True)
class _Part:
    """The result of one part: ``count`` of ``unit`` were done."""

    what: str
    unit: str
    count: int
    seconds: float
    attack: vegeta.Attack
    rate_bar: str
    late_bar: str = ""

    def figures(self, cpu_seconds: Mapping[str, float], beside: str) -> Iterator[Figure]:
        if self.attack.refused:
            raise SystemExit(f"{self.what}: answers were {dict(self.attack.statuses)}")
        shares = (f"{name} {cpu / self.count * 1e6:.1f}" for name, cpu in cpu_seconds.items())
        cpu = f"us of CPU for each, the firings' included: {', '.join(shares)}"
        rate = round(self.count / self.seconds)
        yield _BENCH.one(
            self.what, rate, f"{self.unit}/s", self.rate_bar, runs=self.count,
            beside=f"{beside}; {cpu}",
        )  # fmt: skip
        yield _BENCH.one(
            f"{self.what}, p99", round(self.attack.p99_ms, 2), "ms", self.late_bar,
            runs=self.attack.requests,
            beside=f"p50 {self.attack.p50_ms:.2f} ms, max {self.attack.max_ms:.1f} ms",
        )  # fmt: skip


async def _bulk(place: _Place) -> _Part:
    file, before = place.folder / "bulk", await place.members()
    streams = 4 * _SECONDS  # more than there will be
    vegeta.write(file, _row_targets(place, streams))
    headers = {**place.headers, "Content-Type": "application/x-ndjson"}
    report.say(f"streams of {_ROWS:,} rows, {_STREAMS} at a time")
    attack = await vegeta.attack(file, _SECONDS, headers=headers, workers=_STREAMS)
    count = await place.members() - before
    if count != min(attack.requests, streams) * _ROWS:
        raise SystemExit(f"{attack.requests} streams made {count} members")
    return _Part("bulk upsert", "rows", count, attack.seconds, attack, ">= 25000")


def _row_targets(place: _Place, streams: int) -> Iterator[vegeta.Target]:
    for number in range(streams):
        rows = (
            f'{{"id":"customer:{row}","at":"2090-{row % 12 + 1:02}-{row % 28 + 1:02}'
            f'T{row % 24:02}:{row % 60:02}:00Z","payload":{{"customer":{row}}}}}\n'
            for row in range(number * _ROWS, (number + 1) * _ROWS)
        )
        body = "".join(rows).encode()
        yield vegeta.Target("POST", f"{place.url()}/schedules:bulkUpsert", body)


async def _creates(place: _Place) -> _Part:
    file, before = place.folder / "creates", await place.members()
    vegeta.write(
        file,
        (
            vegeta.Target(
                "PUT", f"{place.url()}/schedules/order:{number}",
                b'{"at":"2090-12-24T18:00:00Z","payload":{"order":%d}}' % number,
            )
            for number in range(_CREATES * _SECONDS)
        ),
    )  # fmt: skip
    report.say(f"{_CREATES:,} creates a second")
    attack = await vegeta.attack(
        file, _SECONDS, headers=place.headers, workers=_WORKERS, rate=_CREATES
    )
    count = place.created = await place.members() - before
    return _Part("single creates", "requests", count, attack.seconds, attack, ">= 2500", "<= 25")


async def _reads(place: _Place) -> _Part:
    file = place.folder / "reads"
    vegeta.write(
        file,
        (
            vegeta.Target("GET", f"{place.url()}/schedules/order:{number}")
            for number in range(0, place.created, 7)
        ),
    )
    report.say(f"{_READS:,} reads a second")
    attack = await vegeta.attack(
        file, _SECONDS, headers=place.headers, workers=_WORKERS, rate=_READS
    )
    return _Part("reads", "requests", attack.requests, attack.seconds, attack, ">= 4000", "<= 25")


# -- the installation ------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _installed() -> AsyncIterator[_Place]:
    async with scene.stack() as stack:
        operator, worker = await stack.running()
        api = stack.http_api()
        await api.wait_until_ready()
        pids = {
            "api": api.pid, "valkey": stack.redis.pid, "worker": worker.pid,
            "operator": operator.pid,
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            place = _Place(stack, api, pids, Path(folder), await stack.member_token())
            for name, changes in (("busy", _FIRINGS), ("loaded", 100_000)):
                stream = {"stream": {"name": name, "maxLength": 10_000}}
                await scene.make_set(stack, name, stream, changes)
            yield place


async def _make_busy(place: _Place) -> None:
    """Fill ``busy`` with recurring members, at the rate at which they shall fire: evenly."""
    rate = _FIRINGS
    count = rate * _PERIOD_SECONDS
    report.say(f"{count:,} members that fire every {_PERIOD_SECONDS} s")
    headers = {**place.headers, "Content-Type": "application/x-ndjson"}
    async with aiohttp.ClientSession(headers=headers) as session:
        began = time.monotonic()
        for first in range(0, count, rate):
            rows = (
                b'{"id":"fires-%d","schedule":"@every %ds"}\n' % (number, _PERIOD_SECONDS)
                for number in range(first, first + rate)
            )
            url = f"{place.url('busy')}/schedules:bulkUpsert"
            async with session.post(url, data=b"".join(rows)) as answer:
                text = await answer.text()
            if answer.status != 200 or text.count('"Created"') != rate:
                raise SystemExit(f"{answer.status}: {text[-500:]}")
            wait = first / rate + 1 - (time.monotonic() - began)
            await asyncio.sleep(max(0.0, wait))
    await asyncio.sleep(5)
