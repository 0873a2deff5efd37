"""kill -9 of every process beside firings of members and writes to their sets.

Two operators, three workers, two HTTP APIs and a Valkey with an append-only file run as processes.
``RATE`` members of a set recur every second and append to a stream. A client creates 5,000 one-offs
a minute through both APIs, for a stream and a webhook in turn, moves some and deletes some. For
``SECONDS``, every half minute the next process is killed and started again.

The answers to the client are compared with what arrived. An entry of a stream comes once. A webhook
that was under way when its worker or Redis was killed may be sent again, under the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from typing import Any

import redis

from benchmarks import report, scene
from benchmarks.members import clients, oneoffs
from benchmarks.members.oneoffs import OneOffs
from benchmarks.report import Figure
from duepoint.client import AsyncClient, AsyncSetClient, MemberRow
from tests.support.process import Process
from tests.support.redisserver import RedisServer
from tests.support.stack import Stack

RATE = int(report.number("RATE", 2_000, 100))
SECONDS = report.number("SECONDS", 600, 60)
EVERY_SECONDS = 10.0 if report.IS_SMALL else 30.0
#: Sets and, where they have one, streams.
_BEATS, _ORDERS, _MAILS = "beats", "orders", "mails"
_WORKERS, _OPERATORS, _APIS = 3, 2, 2
#: A takeover and a Redis that starts again are over long before.
_RECOVERY_SECONDS = 60.0
_READ_AT_ONCE = 5_000
#: A claim that a dead worker held ends after ten seconds; then its webhooks are sent again.
_REPEATS_US = 30_000_000


async def run() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer("valkey", Path(folder), "--appendonly", "yes")
        server.start()
        try:
            async with scene.stack(server) as stack, _installed(stack, server) as scenery:
                return await scenery.play()
        finally:
            server.stop()


class _Scenery:
    """The installation, its clients, and the entries and webhooks that arrive."""

    def __init__(
        self,
        stack: Stack,
        server: RedisServer,
        processes: dict[str, Process],
        apis: list[AsyncClient],
    ) -> None:
        self._stack = stack
        self._server = server
        self._processes = processes
        self._apis = apis
        self._beats: dict[str, list[int]] = {}
        self._late_ms: list[float] = []
        self._one_offs = OneOffs({name: self._sets(name) for name in (_ORDERS, _MAILS)})
        #: Microseconds of each kill that may repeat a request.
        self._repeating: list[int] = []
        self._killed: dict[str, int] = {}

    def _sets(self, name: str) -> list[AsyncSetClient]:
        return [api.schedule_set(self._stack.namespace, name) for api in self._apis]

    async def play(self) -> list[Figure]:
        for name, target in (
            (_BEATS, {"stream": {"name": _BEATS, "maxLength": 100_000}}),
            (_ORDERS, {"stream": {"name": _ORDERS, "maxLength": 100_000}}),
            (_MAILS, {"webhook": self._stack.webhook()}),
        ):
            await scene.make_set(self._stack, name, target)
        rows = (
            MemberRow(id=f"beat-{n}", schedule="@every 1s", catch_up_policy="All",
                      catch_up_limit=1_000, payload={"n": f"beat-{n}"})
            for n in range(RATE)
        )  # fmt: skip
        answers = self._sets(_BEATS)[0].upsert(rows)
        refused = [answer async for answer in answers if answer.is_refused]
        if refused:
            raise SystemExit(f"not stored: {refused[0]}")
        report.say(f"{RATE:,} members recur; kills every {EVERY_SECONDS:g} s for {SECONDS:g} s")
        readers = [asyncio.create_task(self._read(name)) for name in (_BEATS, _ORDERS)]
        killing = asyncio.create_task(self._kill())
        await self._one_offs.write(clients.CREATES_A_MINUTE / 60, SECONDS)
        await killing
        ended_us = time.time_ns() // 1000
        await asyncio.sleep(oneoffs.LONGEST_WAIT_SECONDS + _RECOVERY_SECONDS)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        return list(self._figures(ended_us))

    # -- faults --------------------------------------------------------------------------------

    async def _kill(self) -> None:
        began = time.monotonic()
        turns = [*self._processes, "redis"]
        number = 0
        while time.monotonic() - began < SECONDS - EVERY_SECONDS:
            await asyncio.sleep(EVERY_SECONDS)
            name = turns[number % len(turns)]
            number += 1
            report.say(f"kill -9 {name}")
            self._killed[name] = self._killed.get(name, 0) + 1
            if name == "redis":
                self._repeating.append(time.time_ns() // 1000)
                await asyncio.to_thread(self._server.kill)
                await asyncio.to_thread(self._server.start)
                continue
            process = self._processes[name]
            if process.role == "worker":
                self._repeating.append(time.time_ns() // 1000)
            await process.kill()
            process.start()

    # -- what arrives --------------------------------------------------------------------------

    async def _read(self, name: str) -> None:
        key = f"dp:stream:{self._stack.namespace}:{name}"
        last = b"0"
        while True:
            try:
                with self._server.client() as client:
                    while True:
                        entries: Any = await asyncio.to_thread(
                            client.xrange, key, b"(" + last if last != b"0" else b"-", b"+",
                            _READ_AT_ONCE,
                        )  # fmt: skip
                        for id_, fields in entries:
                            last = id_
                            self._note(name, id_, fields)
                        if len(entries) < _READ_AT_ONCE:
                            await asyncio.sleep(0.5)
            except redis.RedisError:
                await asyncio.sleep(0.2)

    def _note(self, name: str, id_: bytes, fields: dict[bytes, bytes]) -> None:
        which = json.loads(fields[b"payload"])["n"]
        slot_us = round(float(fields[b"slot"]) * 1_000_000)
        if name == _ORDERS:
            self._one_offs.arrived(which, slot_us)
            return
        self._beats.setdefault(which, []).append(slot_us)
        self._late_ms.append(int(id_.partition(b"-")[0]) - slot_us / 1000)

    # -- the verdict ---------------------------------------------------------------------------

    def _figures(self, ended_us: int) -> Iterable[Figure]:
        case = f"{RATE:,} firings/s, {sum(self._killed.values())} kills"
        mails: dict[str, list[int]] = {}
        for one in self._stack.deliveries:
            mails.setdefault(one.webhook_id, []).append(one.arrived_us)
            if len(mails[one.webhook_id]) == 1:
                self._one_offs.arrived_text(one.body["data"]["payload"]["n"], one.slot)
        repeated = [at for times in mails.values() for at in times[1:]]
        unexplained = sum(
            not any(killed < at < killed + _REPEATS_US for killed in self._repeating)
            for at in repeated
        )
        slots = {name: sorted(found) for name, found in self._beats.items()}
        missing = sum(_missing(found, ended_us) for found in slots.values())
        twice = sum(len(found) - len(set(found)) for found in slots.values())
        lost, doubled, removed_ran = self._one_offs.verdict()
        fired = sum(map(len, slots.values()))
        acknowledged = self._one_offs.acknowledged
        report.say(f"killed: {self._killed}")

        names = {f"beat-{number}" for number in range(RATE)}
        if others := sorted(slots.keys() - names):
            report.say(f"entries of no recurring member: {others[:10]}")
        silent = len(names - slots.keys())
        bench = report.Bench("members-kills", case)
        unsure = f"{self._one_offs.unknown} without an answer"
        again = f"{len(repeated)} sent again in all"
        for figure, count, runs, beside in (
            ("recurring members without a slot at all", silent, RATE, ""),
            ("entries of no recurring member", len(others), fired, ""),
            ("slots of recurring members lost", missing, fired, ""),
            ("slots of recurring members twice", twice, fired, ""),
            ("acknowledged one-offs lost", lost, acknowledged, unsure),
            ("one-offs that ran twice", doubled, acknowledged, ""),
            ("one-offs that ran after their deletion or move", removed_ran,
             self._one_offs.changed, ""),
            ("webhooks sent again, not after a kill", unexplained, len(mails), again),
        ):  # fmt: skip
            yield bench.one(figure, count, "slots", "= 0", runs=runs, beside=beside)
        for share in (0.5, 0.99):
            yield bench.share("lateness", share, self._late_ms)


def _missing(slots_us: list[int], ended_us: int) -> int:
    """Return the number of seconds without a slot, from the first slot to the end."""
    wanted = range(slots_us[0], ended_us, 1_000_000)
    return len(set(wanted) - set(slots_us))


@contextlib.asynccontextmanager
async def _installed(stack: Stack, server: RedisServer) -> AsyncIterator[_Scenery]:
    processes: dict[str, Process] = {}
    for number in range(_WORKERS):
        processes[f"worker-{number}"] = stack.worker(f"worker-{number}")
    for number in range(_OPERATORS):
        processes[f"operator-{number}"] = stack.operator(f"operator-{number}")
    urls = []
    for number in range(_APIS):
        processes[f"api-{number}"] = stack.http_api(f"api-{number}")
        urls.append(stack.api_url)
    waits: list[Awaitable[None]] = [
        process.wait_until_ready()
        for process in processes.values()
        if process.role != "operator"  # one operator waits for the Lease
    ]
    await asyncio.gather(*waits)
    token = await stack.member_token()
    async with contextlib.AsyncExitStack() as opened:
        apis = [
            await opened.enter_async_context(AsyncClient(url, token=token, connections=40))
            for url in urls
        ]
        yield _Scenery(stack, server, _in_turn(processes), apis)


def _in_turn(processes: dict[str, Process]) -> dict[str, Process]:
    """Order processes so that roles alternate: a worker, an operator, an API, and so on."""
    by_role: dict[str, list[str]] = {}
    for name, process in processes.items():
        by_role.setdefault(process.role, []).append(name)
    longest = max(map(len, by_role.values()))
    names = [
        listed[number]
        for number in range(longest)
        for listed in by_role.values()
        if number < len(listed)
    ]
    return {name: processes[name] for name in names}
