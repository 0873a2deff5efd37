"""Entries in a real server's streams."""

from __future__ import annotations

import functools

import pytest

from duepoint import clock, errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.targets import target
from duepoint.targets.stream import target as streamtarget
from tests.support import builders, firings, queueing


async def append(queue, action=None, **changes):
    """The ids of the entry of a firing, by itself, as on a cluster."""
    one = firings.a_firing(action or firings.a_stream(), **changes)
    rows = target.Firings(
        action=one.action, namespace=one.namespace, trigger=one.trigger, uids=[one.uid],
        generations=[one.generation], slots_us=[one.slot_us],
    )  # fmt: skip
    return await queue.streams.append(
        streamtarget.StreamTarget(clock.SystemClock()).entries(rows, [b"a member"])
    )


@pytest.fixture
async def fire(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix)
    yield functools.partial(append, made.queue)
    await made.close()


@pytest.fixture
def looked_at(redis_server):
    with redis_server.client() as client:
        yield client


def key_of(key_prefix, name="ticks"):
    return f"{key_prefix}stream:default:{name}"


async def test_an_entry_arrives_with_its_fields(fire, looked_at, key_prefix):
    (given,) = await fire(payload={"a": "hé"})
    ((entry_id, fields),) = looked_at.xrange(key_of(key_prefix))
    assert given == entry_id.decode()
    assert fields[b"id"] == f"{builders.UID}-1772366400".encode()
    assert fields[b"payload"] == '{"a":"hé"}'.encode()
    assert len(fields) == 9


async def test_a_stream_without_a_limit_is_not_trimmed(fire, looked_at, key_prefix):
    for number in range(300):
        await fire(slot_us=number * 1_000_000)
    assert looked_at.xlen(key_of(key_prefix)) == 300


async def test_a_stream_with_a_limit_stays_near_it(fire, looked_at, key_prefix):
    for number in range(500):
        await fire(firings.a_stream("ticks", 10), slot_us=number * 1_000_000)
    assert 10 <= looked_at.xlen(key_of(key_prefix)) < 250  # trimmed by whole nodes of 100


async def test_a_key_of_another_type_is_not_touched(fire, looked_at, key_prefix):
    looked_at.set(key_of(key_prefix), "mine")
    with pytest.raises(queue_errors.WrongType):
        await fire()
    assert looked_at.get(key_of(key_prefix)) == b"mine"


async def test_a_server_that_is_gone_or_full_is_asked_again(own_server, key_prefix):
    made = await queueing.redis_harness(own_server.url, key_prefix)
    with own_server.client() as client:
        client.config_set("maxmemory", "1")
    with pytest.raises(errors.QueueUnavailable):
        await append(made.queue)
    own_server.kill()
    with pytest.raises(errors.QueueUnavailable):
        await append(made.queue)
    await made.close()
