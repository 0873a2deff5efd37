"""What leaves a shard that drains, and what stays with a worker that holds it."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import messages, sharding
from duepoint.schedules import points
from tests.support import queueing

HOUR_US = 3_600_000_000
SHARD = messages.ShardId(0)


@pytest.fixture
async def place(redis_server, key_prefix):
    """Three schedules in one shard, all due."""
    harness = await queueing.redis_harness(redis_server.url, key_prefix, shards=1)
    for number in range(3):
        await harness.arm(name=f"s{number}", due_in=-5.0)
    yield harness
    await harness.close()


async def _drain(harness, *, hold_us=0, epoch=queueing.EPOCH):
    queue = harness.queue
    call = queue.index.call("drain", SHARD, epoch=epoch, state="draining", hold=hold_us)
    return await queue.index.scripts.run(call)


async def _pass(harness, shard):
    steps = [step async for step in harness.queue.mover.passing(shard, queueing.EPOCH)]
    return sum(step.moved for step in steps), sum(step.left_out for step in steps)


async def test_a_hold_keeps_points_where_they_are_for_so_long(place):
    await _drain(place, hold_us=HOUR_US // 60)
    assert await place.claim_all() == []
    await _drain(place)
    (claim,) = await place.claim_all()
    assert len(claim.points) == 3


async def test_a_hold_from_before_the_server_clock_was_put_back_stops_nobody(place):
    await _drain(place, hold_us=HOUR_US)
    assert await place.claim_all() != []


async def test_what_a_worker_holds_stays_with_all_that_belongs_to_it(place):
    (claim,) = await place.claim_all()
    layout = await place.queue.resharding.announce(2, queueing.EPOCH)
    (former,) = sharding.own_shards(layout.former)
    assert await _pass(place, former) == (0, 3)
    first, *_ = claim.points
    retry = queueing.a_retry(first, due_us=claim.now_us + HOUR_US)
    settlement = messages.Settlement(
        chains=tuple(queueing.moved(point, 3_600) for point in claim.points), occurrences=(retry,)
    )
    await place.queue.settlements.settle(claim, settlement)
    assert await _pass(place, former) == (3, 0)
    home = sharding.home(first.schedule_id, layout)
    found = [one async for one in place.queue.occurrences.all_occurrences(home)]
    assert [one.member for one in found] == [retry.point.member]


async def test_schedules_with_thousands_of_slots_that_wait_leave_whole(place):
    layout = await place.queue.resharding.announce(2, queueing.EPOCH)
    (former,) = sharding.own_shards(layout.former)
    names, client = place.server.shard(former), place.server.redis
    (lane,) = await place.queue.definitions.lanes(former)
    version_of = {
        chain[:8]: chain[8:]
        async for chains in place.queue.definitions.chains(former)
        for chain in chains
    }
    stored = [one async for one in queueing.stored(place.queue, former)]
    for one in stored:
        head = one.id + version_of[one.id] + bytes([points.PointKind.RETRY])
        waiting = [head + slot.to_bytes(8, "big") for slot in range(2_500)]
        await client.zadd(names.lane(lane), dict.fromkeys(waiting, points.DUE_LIMIT_US - 1))
        await client.zadd(names.occ, dict.fromkeys(waiting, 0))
        await client.hset(names.occrec, mapping=dict.fromkeys(waiting, b""))
    assert await _pass(place, former) == (3, 0)
    for one in stored:
        home = sharding.home(one.id, layout)
        found = [o async for o in place.queue.occurrences.all_occurrences(home, of=one.id)]
        assert len(found) == 2_500
    left = [o async for o in place.queue.occurrences.all_occurrences(former)]
    assert left == []
