"""A process that is late itself: answers that are there count, and no good connection is lost.

A load of a hundred thousand one-offs on busy cores made workers give up commands that the server
had answered long before; their leases ran out, and receivers were asked twice.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from duepoint.delayqueue.wire import nodes
from tests.support import queueing, waiting


@pytest.fixture
async def node(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix, users=False, connections=4)
    yield made.servers
    await made.close()


def _asleep_after(turns, seconds):
    """The process does not run for so long, once the loop has made so many turns."""
    loop = asyncio.get_running_loop()

    def turn(left):
        if left:
            loop.call_soon(turn, left - 1)
        else:
            time.sleep(seconds)

    turn(turns)


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("command", [("HMGET", "nothing", "x"), ("GET", "nothing")])
async def test_an_answer_that_came_while_the_process_slept_is_taken(
    node, monkeypatch, turns, command
):
    await node.exchange([command])
    monkeypatch.setattr(nodes, "COMMAND_TIMEOUT_SECONDS", 0.1)
    _asleep_after(turns, 0.3)
    assert await node.exchange([command]) in ([[None]], [None])


async def test_a_silent_server_is_given_up_by_a_process_that_is_always_late(
    node, own_server, key_prefix, monkeypatch
):
    lonely = await queueing.redis_harness(own_server.url, key_prefix, users=False)
    monkeypatch.setattr(nodes, "COMMAND_TIMEOUT_SECONDS", 0.2)
    own_server.pause()

    async def hinder():
        while True:
            time.sleep(0.05)  # noqa: ASYNC251 - that is what is tried
            await asyncio.sleep(0)

    hindering = asyncio.create_task(hinder())
    began = time.monotonic()
    (answer,) = await lonely.servers.exchange([("HMGET", "nothing", "x")])
    took = time.monotonic() - began
    hindering.cancel()
    own_server.resume()
    await lonely.close()
    assert isinstance(answer, TimeoutError)
    assert took < 10  # else it waits for ever


async def test_a_server_that_let_a_command_time_out_fails_at_once_until_it_answers(
    own_server, key_prefix, monkeypatch
):
    lonely = await queueing.redis_harness(own_server.url, key_prefix, users=False)
    monkeypatch.setattr(nodes, "COMMAND_TIMEOUT_SECONDS", 0.2)
    node = lonely.servers
    own_server.pause()
    (first,) = await node.exchange([("PING",)])
    monkeypatch.undo()
    began = time.monotonic()
    (second,) = await node.exchange([("PING",)])
    took = time.monotonic() - began
    own_server.resume()
    assert isinstance(first, TimeoutError)
    assert "has not answered for a while" in str(second)
    assert took < nodes.COMMAND_TIMEOUT_SECONDS

    async def answers():
        return await node.exchange([("PING",)]) == [True]

    await waiting.eventually(answers, "it answers")
    await lonely.close()
