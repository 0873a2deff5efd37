"""Last slots of schedules in the queue: bounded, written with a settlement, gone with it all."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import quotas
from duepoint.delayqueue.messages import Settlement
from duepoint.runs import history
from tests.support import queueing
from tests.unit.runs.test_past import SECOND, T0, an_event

QUOTAS = quotas.Quotas(history=100, namespace_history=10_000)


@pytest.fixture
async def harness(redis_server, key_prefix):
    made = await queueing.redis_harness(
        redis_server.url, key_prefix, shards=1, buckets=1, quotas=QUOTAS
    )
    yield made
    await made.close()


def record(number=0, **more):
    at_us = T0 + number * SECOND
    return history.record(an_event(slot_us=at_us, started_us=at_us, finished_us=at_us, **more))


async def settle(harness, *numbers, name="report", number=1, of_member=False, **more):
    """Settles one claimed chain of this schedule with records of these slots; the claim."""
    await harness.arm(name=name, due_in=-1)
    claim = await harness.claim_one()
    (point,) = claim.points
    kept = tuple(
        history.Kept(point.schedule_id, record(each, **more), of_member) for each in numbers
    )
    chain = queueing.moved(point, 3_600)
    settlement = Settlement(chains=(chain,), history=kept, number=number)
    await harness.queue.settlements.settle(claim, settlement)
    return claim, settlement


def schedule_id(harness, name="report"):
    return harness.definition(name=name).id


async def slots(harness, name="report", **more):
    found = await harness.queue.history.of(schedule_id(harness, name), **more)
    return [(slot.slot_us - T0) // SECOND for slot in found]


def the_hash(harness, *, of_member=False):
    names = harness.server.shard(0)
    bucket = names.bucket_of(schedule_id(harness), 1)
    return names.history_beside(bucket, of_member=of_member)


async def check_the_sum(harness, **more):
    """The bytes that are noted are those that are there."""
    found = await harness.server.redis.hgetall(the_hash(harness, **more))
    noted = int(found.pop(b"", 0))
    assert noted == sum(len(value) + 64 for value in found.values())
    return noted


async def test_the_last_slots_come_back_newest_first(harness):
    await settle(harness, 1, 2, 3)
    assert await slots(harness) == [3, 2, 1]
    assert await slots(harness, "another") == []
    await check_the_sum(harness)


async def test_a_schedule_keeps_its_newest_slots_within_its_bytes(harness):
    await settle(harness, *range(1, 30))
    kept = await slots(harness)
    assert kept == list(range(29, 29 - len(kept), -1))
    value = await harness.server.redis.hget(the_hash(harness), schedule_id(harness))
    assert 100 - len(record(1)) < len(value) <= 100
    await check_the_sum(harness)


async def test_a_bucket_that_is_full_loses_slots_of_others(redis_server, key_prefix):
    room = quotas.Quotas(history=100, namespace_history=1_000)
    harness = await queueing.redis_harness(
        redis_server.url, key_prefix, shards=1, buckets=1, quotas=room
    )
    for number in range(30):
        await settle(harness, number, name=f"s{number}")
        assert await slots(harness, f"s{number}") == [number]
        assert await check_the_sum(harness) <= 1_000
    held = [number for number in range(30) if await slots(harness, f"s{number}")]
    assert 8 <= len(held) < 15
    await harness.close()


async def test_no_history_is_kept_where_the_setting_is_zero(redis_server, key_prefix):
    none = quotas.Quotas(history=0)
    harness = await queueing.redis_harness(
        redis_server.url, key_prefix, shards=1, buckets=1, quotas=none
    )
    await settle(harness, 1)
    assert await harness.server.redis.exists(the_hash(harness)) == 0
    await harness.close()
