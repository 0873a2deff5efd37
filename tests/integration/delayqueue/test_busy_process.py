"""A process that is late itself: answers that are there count, and no good connection is lost.

A load of a hundred thousand one-offs on busy cores made workers give up commands that the server
had answered long before; their leases ran out, and receivers were asked twice.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from duepoint.delayqueue.wire import nodes, timelimits
from tests.support import queueing


@pytest.fixture
async def node(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix, users=False, connections=4)
    yield made.servers.node
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
    (answer,) = await lonely.servers.node.exchange([("HMGET", "nothing", "x")])
    took = time.monotonic() - began
    hindering.cancel()
    own_server.resume()
    await lonely.close()
    assert isinstance(answer, TimeoutError)
    assert took < 10  # else it waits for ever


async def test_waiting_for_a_connection_is_no_silence_of_the_server(node, monkeypatch):
    monkeypatch.setattr(nodes, "COMMAND_TIMEOUT_SECONDS", 0.1)
    held = [await node.pool.get_connection() for _ in range(4)]
    asking = asyncio.create_task(node.exchange([("HMGET", "nothing", "x")]))
    await asyncio.sleep(0.3)
    for connection in held:
        await node.pool.release(connection)
    assert await asking == [[None]]


@pytest.mark.parametrize(("answers", "is_answered"), [(True, True), (False, False)])
async def test_a_full_pool_is_waited_for_as_long_as_the_server_answers(
    node, monkeypatch, answers, is_answered
):
    monkeypatch.setattr(node.pool, "timeout", 0.2)
    held = [await node.pool.get_connection() for _ in range(4)]
    asking = asyncio.create_task(node.exchange([("HMGET", "nothing", "x")]))
    for _ in range(3):
        await asyncio.sleep(0.1)
        node.pool.answers += answers
    for connection in held:
        await node.pool.release(connection)
    (answer,) = await asking
    assert (answer == [None]) is is_answered


async def test_what_is_asked_while_idle_connections_are_dropped_is_answered(node):
    async def ask():
        return await node.exchange([("HMGET", "nothing", "x")])

    for turns in range(6):
        held = [await node.pool.get_connection() for _ in range(4)]
        for connection in held:
            await node.pool.release(connection)
        dropping = asyncio.create_task(node.pool.drop_idle())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert await ask() == [[None]]
        await dropping


async def test_a_limit_that_is_met_in_time_is_the_usual_one():
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with timelimits.AnswerWithin(0.1):
            await asyncio.Event().wait()
    assert time.monotonic() - began < 5


async def test_cancellation_passes_a_limit():
    async def wait():
        async with timelimits.AnswerWithin(5):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
