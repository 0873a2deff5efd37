"""A node that lets a command time out holds up no other node's shards a second time."""

from __future__ import annotations

import asyncio

import pytest
import redis.exceptions

from duepoint.delayqueue.wire import cluster as clusters
from duepoint.delayqueue.wire import connecting, nodes

ONE, TWO = ("one", 1), ("two", 2)
OF_ONE = ("HMGET", "{a}defs", "x")
OF_TWO = ("HMGET", "{b}defs", "x")


class Node:
    """Answers its name, or nothing."""

    def __init__(self, host):
        self.host = host
        self.replicas = 0
        self.is_silent = False
        self.asked = []
        self.pinged = asyncio.Event()

    async def exchange(self, commands, *, confirmed=False):
        if commands[0] == ("CLUSTER", "SLOTS"):
            return [redis.exceptions.ConnectionError("not now")]
        if commands == [("PING",)]:
            self.pinged.set()
        else:
            self.asked.append(commands)
        return [TimeoutError() if self.is_silent else self.host[0]] * len(commands)

    async def close(self):
        pass


@pytest.fixture
async def made(monkeypatch):
    monkeypatch.setattr(nodes, "_ASK_SECONDS", 0.001)
    made = clusters.Cluster(connecting.Server(url="redis+cluster://one:1"), connections=1)
    owners = [ONE] * clusters.SLOTS
    owners[clusters.slot_of("{b}")] = TWO
    made._take(clusters.Map(owners, {}))
    made._is_stale = False
    made._nodes.update({host: Node(host) for host in (ONE, TWO)})
    yield made
    await made.close()


async def test_a_silent_node_is_waited_for_once_and_then_fails_at_once(made):
    made._nodes[TWO].is_silent = True
    first = await made.exchange([OF_ONE, OF_TWO])
    again = await made.exchange([OF_ONE, OF_TWO])
    assert (first[0], again[0]) == ("one", "one")
    assert isinstance(first[1], TimeoutError)
    assert isinstance(again[1], redis.exceptions.TimeoutError)
    assert "two:2" in str(again[1])
    assert len(made._nodes[TWO].asked) == 1


async def test_a_silent_node_is_used_again_once_it_answers(made):
    two = made._nodes[TWO]
    two.is_silent = True
    await made.exchange([OF_TWO])
    two.is_silent = False
    (asking,) = made._health._asking.values()
    await asking
    assert await made.exchange([OF_TWO]) == ["two"]


async def test_a_node_that_is_no_primary_any_more_is_not_asked_for_ever(made):
    made._nodes[TWO].is_silent = True
    await made.exchange([OF_TWO])
    await made._nodes[TWO].pinged.wait()
    made._take(clusters.Map([ONE] * clusters.SLOTS, {}))
    await asyncio.sleep(0)
    assert made._health.of(TWO) is None
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_question_that_goes_wrong_does_not_silence_a_node_for_ever():
    async def broken(host):
        raise RuntimeError("the handler is closed")

    told = []
    noticed = nodes.NodeHealth(broken, lambda: told.append("answer"))
    noticed.note(TWO, [TimeoutError()])
    (asking,) = noticed._asking.values()
    with pytest.raises(RuntimeError):
        await asking
    assert noticed.of(TWO) is None
    assert told == ["answer"]


async def test_one_that_refuses_is_asked_each_time(made):
    refused = redis.exceptions.ConnectionError("connection refused")
    made._health.note(TWO, [refused])
    assert await made.exchange([OF_TWO]) == ["two"]


async def test_closing_ends_the_asking(made):
    made._nodes[TWO].is_silent = True
    await made.exchange([OF_TWO])
    await made.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
