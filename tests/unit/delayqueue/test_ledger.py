"""What the ledger asks for, without a server."""

from __future__ import annotations

from duepoint.delayqueue import keys, ledger, messages, sharding

SHARDS = 64


class Answering:
    """A server without anything; writes down what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def exchange(self, commands, **_):
        self.asked += [command[1] for command in commands]
        return [[b"0-0", [], []] for _ in commands]


async def test_taking_over_looks_at_each_shard_once_however_many_there_are():
    named, answering = [], Answering()
    layout = messages.Layout(number=1, shards=SHARDS)

    def names(shard):
        named.append(shard)
        return keys.Keys().shard(sharding.layout_of(shard), sharding.index_of(shard))

    opened = ledger.RedisLedger(servers=answering, names=names, layout=lambda: layout)
    named.clear()
    assert await opened.recover_outcomes("status", "reader") == []
    assert len(answering.asked) == len(set(answering.asked)) == SHARDS
    assert len(named) <= 2 * SHARDS
