"""What the ledger asks for, without a server."""

from __future__ import annotations

from duepoint.clock import SystemClock
from duepoint.delayqueue import index, keys, ledger, messages

SHARDS = 64


class Answering:
    """A server without anything; writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def exchange(self, commands, **_):
        self.asked += [command[1] for command in commands]
        return [[b"0-0", [], []] for _ in commands]


async def test_taking_over_looks_at_each_shard_once_however_many_there_are(monkeypatch):
    named, answering = [], Answering()
    shared = index.Index(answering, keys.IndexKeys(), SystemClock(), buckets=1)
    shared.layout = messages.Layout(number=1, shards=SHARDS)
    opened = ledger.Ledger(shared)
    shard_keys = shared.shard
    monkeypatch.setattr(shared, "shard", lambda shard: named.append(shard) or shard_keys(shard))
    assert await opened.recover_outcomes("status", "reader") == []
    assert len(answering.asked) == len(set(answering.asked)) == SHARDS
    assert len(named) <= 2 * SHARDS
