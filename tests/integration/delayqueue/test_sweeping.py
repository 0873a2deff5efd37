"""Sweeping namespaces of every size, with a great deal missing, and what stays untouched."""

from __future__ import annotations

import contextlib
import uuid

import pytest
import redis

from duepoint.delayqueue import keys, messages
from duepoint.delayqueue.repair import sweeper
from duepoint.schedules import points
from tests.support import queueing
from tests.support.queueing import BLOB, EPOCH

HOUR_US = 3_600_000_000


@pytest.fixture(params=["whole", "apart"])
async def harness(request, redis_server, key_prefix, monkeypatch):
    if request.param == "apart":
        monkeypatch.setattr(sweeper, "_LARGE", 0)
    made = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    yield made
    await made.close()


async def test_hundreds_of_lost_chains_are_armed_and_the_others_left_alone(harness):
    wanted = await _arm(harness, 900)
    lost = wanted[::2]
    for one in lost:
        await _client(harness).zrem(await _lane(harness, one), _chain(one))
    before = await _scores(harness)
    swept = await _sweep(harness, due_of=lambda known: known.created_us + HOUR_US)
    assert sum(one.armed for one in swept) == len(lost)
    after = await _scores(harness)
    assert {m: s for m, s in after.items() if m in before} == before
    assert {after[_chain(one)] for one in lost} == {queueing.CREATED_US + HOUR_US}
    assert not any(map(_did, await _sweep(harness, due_of=lambda known: 1)))


@pytest.mark.parametrize(("schedules", "most"), [(0, 15), (3, 60)])
@pytest.mark.parametrize("large", [sweeper._LARGE, -1], ids=["whole", "apart"])
async def test_a_shard_with_little_in_it_is_swept_by_few_commands(
    redis_server, key_prefix, monkeypatch, schedules, most, large
):
    """It took a hundred: one for each hash that may be there. A round has 64 shards."""
    monkeypatch.setattr(sweeper, "_LARGE", large)
    harness = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    try:
        await _arm(harness, schedules)
        with reads_of(redis_server) as sent:
            await _sweep(harness, due_of=lambda known: 1)
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
                one["calls"]
                for name, one in stats.items()
                if name.partition("_")[2] in {"exists", "hkeys", "hgetall", "zcard", "zrange"}
            )

        before = count()
        yield lambda: count() - before


async def test_hundreds_of_points_without_a_definition_go(harness):
    wanted = await _arm(harness, 600)
    gone = wanted[::2]
    names = harness.server.shard(0)
    for one in gone:
        bucket = names.bucket_of(one.definition.id, harness.server.buckets)
        await _client(harness).hdel(bucket, one.definition.id)
    swept = await _sweep(harness, due_of=lambda known: 1)
    assert sum(one.dropped for one in swept) == len(gone)
    assert set(await _scores(harness)) == {_chain(one) for one in wanted[1::2]}
    assert not any(map(_did, await _sweep(harness, due_of=lambda known: 1)))


async def test_two_namespaces_with_one_population_are_looked_at_together(harness):
    one, other = _of_one_population()
    wanted = await _arm(harness, 40, namespaces=(one, other))
    lost = wanted[3]
    await _client(harness).zrem(await _lane(harness, lost), _chain(lost))
    swept = await _sweep(harness, due_of=lambda known: 5)
    assert [(s.armed, s.dropped) for s in swept if _did(s)] == [(1, 0)]
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
    assert not any(map(_did, await _sweep(harness, due_of=lambda known: 1)))


async def test_a_sweep_may_be_begun_again_at_any_step(harness):
    await _arm(harness, 30, namespaces=("a", "b"))
    first = await harness.queue.sweeper.sweep(0, None, EPOCH)
    assert first.cursor is not None
    other = queueing.a_queue(harness.server.url, harness.server.prefix)
    await other.layouts.read()
    cursor = first.cursor
    while cursor is not None:
        swept = await other.sweeper.sweep(0, cursor, EPOCH)
        assert not _did(swept)
        cursor = swept.cursor
    await other.close()


def test_small_namespaces_share_a_step_and_large_ones_are_taken_apart():
    namespaces = {1: "small", 2: "smaller", 3: "large"}
    populations = {lane: (keys.population_of(name),) for lane, name in namespaces.items()}
    plan = sweeper.sweep_plan(populations, {1: 10, 2: 20, 3: 1_000_000}, 70)
    large = keys.population_of("large")
    apart = [step for step in plan.steps if not isinstance(step, sweeper.Whole)]
    assert apart == [
        *(sweeper.Buckets(large, a, b, (3,)) for a, b in ((0, 32), (32, 64), (64, 70))),
        3,
    ]
    (whole,) = [step for step in plan.steps if isinstance(step, sweeper.Whole)]
    assert set(whole.lanes) == {1, 2}


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


async def _sweep(harness, *, due_of):
    swept, cursor = [], None
    while not swept or cursor is not None:
        swept.append(await harness.queue.sweeper.sweep(0, cursor, EPOCH, due_of=due_of))
        cursor = swept[-1].cursor
    return swept


def _did(swept):
    return swept.armed or swept.dropped or swept.mended or swept.unarmed


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
