"""A circuit that was opened while its server's clock was ahead, once that clock is right again."""

from __future__ import annotations

import msgspec
import pytest
import redis

from duepoint import clock
from duepoint.delayqueue import circuits
from duepoint.runs import circuit
from duepoint.targets.webhook import circuitbreaker
from tests.support import queueing

HOST = "team https hooks.example 443"
HOUR_US = 3_600_000_000
RULE = circuit.CircuitRule(most_in_a_row=3, first_wait_us=40_000, most_wait_us=150_000)


@pytest.fixture
async def harness(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix)
    yield made
    await made.close()


async def open_in_an_hour(harness, server, *, probe_us=0):
    """As a server wrote it whose clock was an hour ahead."""
    news = circuit.News(host=HOST, calls=(-3,), probe_us=0, ask_us=0, cause="answered 503")
    board = await harness.queue.circuits.report([news], rule=RULE)
    stored = msgspec.structs.replace(
        board.hosts[HOST],
        until_us=board.hosts[HOST].until_us + HOUR_US,
        probe_us=probe_us and board.now_us + probe_us,
    )
    key = harness.server.keys.circuits
    field = circuits._HOST + HOST.encode()
    with redis.Redis.from_url(server.url, protocol=2) as client:
        client.hset(key, field, msgspec.msgpack.encode(stored))


@pytest.mark.parametrize("probe_us", [0, HOUR_US], ids=["waits", "probed"])
async def test_it_is_probed_as_soon_as_the_clock_is_right(harness, redis_server, probe_us):
    await open_in_an_hour(harness, redis_server, probe_us=probe_us)
    asking = circuit.News(host=HOST, calls=(), probe_us=0, ask_us=1_000_000, cause="")
    board = await harness.queue.circuits.report([asking], rule=RULE)
    assert board.probes[0] > 0


async def test_a_worker_waits_for_no_longer_than_a_circuit_is_opened_for(harness, redis_server):
    await open_in_an_hour(harness, redis_server)
    worker = circuitbreaker.CircuitBreaker(harness.queue.circuits, clock.SystemClock(), RULE)
    await worker.freshen()
    wait = worker.wait_of(HOST)
    assert wait is None or wait.seconds < 2
    await worker.close()
