"""Simulated applications that use a full set, by the services that the HTTP API calls.

``python -m benchmarks.members.clients create|read URL COUNT SECONDS`` is one such process:
``create`` stores 5,000 new members a minute, one at a time; ``read`` gets single members and pages
of 100, one after the other. Each prints how many calls it made and how long they took.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import uvloop

from benchmarks import report
from benchmarks.members import place
from benchmarks.queuespeed import place as queueplace
from benchmarks.scene import Child
from duepoint.delayqueue import delayqueue
from duepoint.delayqueue.members.values import Outcome
from tests.support.redisserver import RedisServer

CREATES_A_MINUTE = 5_000
_READS_A_SECOND = 50
_PAGE = 100
_HOUR_US = 3_600_000_000

AnswerT = TypeVar("AnswerT")
#: Milliseconds of each call, by what was called.
Took = dict[str, list[float]]


async def run(server: RedisServer, what: str, count: int, seconds: float) -> Took:
    """Run one such process, and return its measurements."""
    child = await Child.start("benchmarks.members.clients", what, server.url, count, seconds)
    found: Took = json.loads(await child.finish())
    return found


async def _main(what: str, url: str, count: int, seconds: float) -> None:
    print("ready", flush=True)
    async with place.queue(url, count) as queue:
        calls = (_Creates if what == "create" else _Reads)(queue, count)
        began = time.monotonic()
        done = 0
        while (passed := time.monotonic() - began) < seconds:
            if done < passed * calls.rate:
                await calls.next()
                done += 1
            else:
                await asyncio.sleep(0.002)
        print(json.dumps(calls.took), flush=True)


class _Creates:
    """Creates one new member a call, due in an hour."""

    rate = CREATES_A_MINUTE / 60

    def __init__(self, queue: delayqueue.DelayQueue, count: int) -> None:
        self._queue = queue
        self._record = place.the_set(queue, count)
        self._next = count
        self.took: Took = {"create": []}

    async def next(self) -> None:
        row = place.a_one_off(self._next, queueplace.now_us() + _HOUR_US)
        self._next += 1
        (answer,) = await _timed(
            self.took["create"], lambda: self._queue.members.put(self._record, [row])
        )
        if answer.outcome is not Outcome.CREATED:
            raise SystemExit(f"not created: {answer}")


class _Reads:
    """Reads one random member a call; every fifth call reads a page."""

    rate = _READS_A_SECOND

    def __init__(self, queue: delayqueue.DelayQueue, count: int) -> None:
        self._queue = queue
        self._record = place.the_set(queue, count)
        self._count = count
        self._number = 0
        self._cursor = ""
        self.took: Took = {"get": [], "list": []}

    async def next(self) -> None:
        self._number += 1
        if self._number % 5:
            name = place.name(random.randrange(self._count))
            (found,) = await _timed(
                self.took["get"], lambda: self._queue.members.lookups.get(self._record, [name])
            )
            if found is None:
                raise SystemExit(f"{name} is not there")
        else:
            page = await _timed(
                self.took["list"],
                lambda: self._queue.members.pages.page(self._record, self._cursor, limit=_PAGE),
            )
            if len(page.members) != _PAGE:
                report.say(f"a page of {len(page.members)}")
            self._cursor = page.cursor


async def _timed(into: list[float], call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    began = time.perf_counter()
    answer = await call()
    into.append((time.perf_counter() - began) * 1000)
    return answer


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
