"""What the ledger asks for, and when it wakes."""

from __future__ import annotations

import asyncio

from duepoint.clock import SystemClock
from duepoint.delayqueue import index, keys, ledger, messages
from tests.fakes.fakeclock import FakeClock
from tests.support.virtualqueue import VirtualQueue

SHARDS = 64


class Answering:
    """A server without anything; writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def exchange(self, commands, **_):
        self.asked += [" ".join(map(str, command[:2])) for command in commands]
        return [[None] if command[0] == "HMGET" else [] for command in commands]


async def test_taking_over_looks_at_each_shard_once_however_many_there_are(monkeypatch):
    named, answering = [], Answering()
    shared = index.Index(answering, keys.IndexKeys(), SystemClock(), buckets=1)
    shared.layout = messages.Layout(number=1, shards=SHARDS)
    opened = ledger.Ledger(shared)
    shard_keys = shared.shard
    monkeypatch.setattr(shared, "shard", lambda shard: named.append(shard) or shard_keys(shard))
    assert await opened.read_outcomes({}) == []
    assert len(answering.asked) == len(set(answering.asked)) == 2 * SHARDS
    assert len(named) <= 2 * SHARDS


async def test_a_sleeping_reader_follows_the_process_to_another_layout():
    clock = FakeClock()
    queue = VirtualQueue(clock)
    await queue.membership.open(4, messages.Epoch(1))
    reader = queue.ledger()
    await reader.start()
    await clock.settle()
    assert len(await reader.wait_for_outcomes(60.0)) == 4
    sleeping = asyncio.create_task(reader.wait_for_outcomes(60.0))
    await clock.settle()
    assert not sleeping.done()
    await queue.resharding.announce(8, messages.Epoch(1))
    await clock.settle()
    assert len(sleeping.result()) == 4 + 8
    await reader.close()
    assert queue.index.on_layout == []
