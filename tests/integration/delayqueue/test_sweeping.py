"""Walks over namespaces of every size, with a great deal missing, and what stays untouched."""

from __future__ import annotations

import contextlib
import uuid

import pytest
import redis

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import keys, messages
from duepoint.schedules import points
from tests.support import queueing
from tests.support.queueing import BLOB, EPOCH

HOUR_US = 3_600_000_000
READS = {"exists", "hkeys", "hgetall", "hmget", "hscan", "zmscore"}


@pytest.fixture
async def harness(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    yield made
    await made.close()


async def test_hundreds_of_lost_chains_are_armed_and_the_others_left_alone(harness):
    wanted = await _arm(harness, 900)
    lost = wanted[::2]
    for one in lost:
        await _client(harness).zrem(await _lane(harness, one), _chain(one))
    before = await _scores(harness)
    assert await harness.rearm(due_of=lambda known: known.created_us + HOUR_US) == len(lost)
    after = await _scores(harness)
    assert {m: s for m, s in after.items() if m in before} == before
    assert {after[_chain(one)] for one in lost} == {queueing.CREATED_US + HOUR_US}
    assert await harness.rearm(1) == 0


async def test_a_chain_that_is_armed_again_is_its_lanes_head(harness):
    (one,) = await _arm(harness, 1)
    await _client(harness).zrem(await _lane(harness, one), _chain(one))
    assert await harness.rearm(1) == 1
    (claim,) = await harness.claim_all()
    assert [point.due_us for point in claim.points] == [1]


async def test_a_shard_that_is_gone_is_found_out(harness):
    await _client(harness).delete(harness.server.shard(0).meta)
    with pytest.raises(queue_errors.Uninitialised):
        await harness.rearm(1)


@pytest.mark.parametrize(("schedules", "most"), [(0, 15), (3, 60)])
async def test_a_shard_with_little_in_it_is_swept_by_few_commands(
    redis_server, key_prefix, schedules, most
):
    """It took a hundred: one for each hash that may be there. A walk has 64 shards."""
    harness = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    try:
        await _arm(harness, schedules)
        with reads_of(redis_server) as sent:
            await harness.rearm(1)
        assert 0 < sent() <= most
    finally:
        await harness.close()


@contextlib.contextmanager
def reads_of(server):
    """How many reading commands it has carried out within."""
    with redis.Redis.from_url(server.url, protocol=2) as client:

        def count():
            stats = client.info("commandstats")
            return sum(
                one["calls"] for name, one in stats.items() if name.partition("_")[2] in READS
            )

        before = count()
        yield lambda: count() - before


async def test_two_namespaces_with_one_population_are_looked_at_together(harness):
    one, other = _of_one_population()
    wanted = await _arm(harness, 40, namespaces=(one, other))
    lost = wanted[3]
    await _client(harness).zrem(await _lane(harness, lost), _chain(lost))
    assert await harness.rearm(5) == 1
    lane = await _lane(harness, lost)
    assert await _client(harness).zscore(lane, _chain(lost)) == 5


async def test_occurrences_of_every_namespace_are_known_to_be_there(harness):
    wanted = await _arm(harness, 6, namespaces=("a", "b", "c"))
    for one in wanted:
        record = messages.OccurrenceRecord()
        known = one.definition
        check = points.check(known.id, known.timing_version, 1)
        await harness.queue.occurrences.enqueue(known, check, record, EPOCH)
    await harness.claim_all()
    assert await harness.rearm(1) == 0


# -- steps --------------------------------------------------------------------------------------


async def _arm(harness, count, *, namespaces=("default",)):
    wanted = [
        harness.arming(
            name=f"s{n}",
            uid=str(uuid.uuid4()),
            namespace=namespaces[n % len(namespaces)],
            due_in=60.0,
        )
        for n in range(count)
    ]
    await harness.queue.writer.upsert([(one, BLOB) for one in wanted], EPOCH)
    return wanted


def _client(harness):
    return harness.server.redis


def _chain(arming):
    return arming.definition.id + arming.definition.timing_version


async def _lane(harness, arming):
    lanes = await harness.queue.definitions.namespaces(0)
    (number,) = [n for n, name in lanes.items() if name == arming.definition.namespace]
    return harness.server.shard(0).lane(number)


async def _scores(harness):
    found = {}
    for lane in await harness.queue.definitions.namespaces(0):
        name = harness.server.shard(0).lane(lane)
        found |= dict(await _client(harness).zrange(name, 0, -1, withscores=True))
    return {member: score for member, score in found.items() if member}


def _of_one_population():
    seen = {}
    for number in range(100_000):
        name = f"team-{number}"
        other = seen.setdefault(keys.population_of(name), name)
        if other != name:
            return other, name
    raise AssertionError("there are 16,384 populations")
