"""A primary of a cluster dies; what its replica had not heard of is written again."""

from __future__ import annotations

import asyncio

import pytest

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.wire import cluster as clusters
from tests.support import fallingreplica, queueing, shardstats
from tests.support.queueing import moved
from tests.support.waiting import LONGEST_SECONDS

SHARDS = 8


@pytest.fixture
async def failing(own_cluster, key_prefix):
    made = await queueing.redis_harness(own_cluster.url, key_prefix, shards=SHARDS)
    yield made
    await made.close()


async def test_what_a_lagging_replica_never_heard_of_is_armed_again_by_the_resync(
    failing, own_cluster
):
    old, new = ([f"{kind}{number}" for number in range(24)] for kind in ("old", "new"))
    await _arm(failing, old, due_in=3600.0)
    wakeups = failing.queue.wakeups()
    await wakeups.start()
    await _quiet(failing, wakeups)
    primary = own_cluster.owner(_slot(failing, 0))
    replica = own_cluster.replica_of(primary)
    lost = {shard for shard in range(SHARDS) if own_cluster.owner(_slot(failing, shard)) is primary}
    replica.pause()
    own_cluster.ask(primary, "CLIENT", "KILL", "TYPE", "replica")  # its socket would still fill
    armed_us = failing.now_us()
    await _arm(failing, new, due_in=1.0)  # Ready, though that replica does not have them
    primary.kill()
    replica.resume()
    await _until_answered(failing)
    assert failing.servers.changes.upheavals > 0
    before = await _stored(failing)
    assert lost
    assert {name for _, name in before} > set(old)
    assert not [name for shard, name in before if shard in lost and name in new]
    # The promoted replica is heard, and everything is looked at again.
    async with asyncio.timeout(LONGEST_SECONDS):
        while not lost & set(await wakeups.wait_until_due(30)):
            pass
    # What the leader does when it is told: every object is compared, then swept.
    await _arm(failing, old, due_in=3600.0)
    await _arm(failing, new, due_in=1.0)
    assert {name for _, name in await _stored(failing)} == {*old, *new}
    fired = await _fired(
        failing, {failing.definition(name=name, namespace=name).id for name in new}
    )
    assert all(point.due_us >= armed_us + 1_000_000 for point in fired)
    await wakeups.close()


async def test_what_ran_unheard_of_by_a_replica_waits_there_and_later_slots_do_not(
    failing, own_cluster
):
    scene = fallingreplica.Scene(failing)
    await scene.arm()
    primary = own_cluster.owner(_slot(failing, scene.shard))
    replica = own_cluster.replica_of(primary)
    await scene.wait_until_copied(primary)
    replica.pause()
    own_cluster.ask(primary, "CLIENT", "KILL", "TYPE", "replica")  # its socket would still fill
    await scene.run_on_the_primary()
    primary.kill()
    replica.resume()
    await scene.check_on_the_replica()


@pytest.mark.parametrize("own_cluster", ["valkey"], indirect=True)
async def test_a_cluster_without_a_node_is_waited_for_and_heals_by_itself(failing, own_cluster):
    await failing.arm()
    (claim,) = await failing.claim_all()
    await failing.queue.claims.release(claim)
    primary = own_cluster.owner(_slot(failing, claim.shard))
    own_cluster.replica_of(primary).kill()
    primary.kill()
    with pytest.raises(errors.QueueUnavailable):
        await failing.queue.claims.claim([claim.shard], worker="w")
    with pytest.raises(errors.QueueUnavailable):
        await failing.arm(generation=2)
    primary.start()
    # It was emptied by its death: its shards are made anew, nobody else's.
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                await failing.queue.membership.open(SHARDS, queueing.EPOCH)
            except errors.QueueUnavailable:
                await asyncio.sleep(0.1)
            else:
                break
    assert await failing.arm() is messages.Armed.APPLIED
    assert len(await failing.claim_all()) == 1


def _slot(harness, shard):
    return clusters.slot_of(harness.server.shard(messages.ShardId(shard)).meta)


async def _until_answered(harness):
    """Until every shard answers again."""
    async with asyncio.timeout(LONGEST_SECONDS):
        while True:
            try:
                await harness.look(batch=1, lease_seconds=0.1)
                await shardstats.read(harness.queue)
            except errors.QueueUnavailable:
                await asyncio.sleep(0.1)
            else:
                return


async def _arm(harness, names, **options):
    for name in names:
        await harness.arm(name=name, namespace=name, **options)


async def _stored(harness):
    return {
        (shard, stored.name)
        for shard in await harness.shards()
        async for stored in queueing.stored(harness.queue, shard)
    }


async def _fired(harness, ids):
    """Claims and moves on until all of these have fired; nothing early."""
    fired = []
    async with asyncio.timeout(LONGEST_SECONDS):
        while {point.schedule_id for point in fired} != ids:
            for claim in await harness.claim_all():
                assert all(point.due_us <= harness.now_us() for point in claim.points)
                fired += claim.points
                chains = tuple(moved(point, 3600) for point in claim.points)
                await harness.queue.settlements.settle(claim, messages.Settlement(chains=chains))
            await asyncio.sleep(0.05)
    return fired


async def _quiet(harness, wakeups):
    while shards := await wakeups.wait_until_due(0.7):
        for answer in await harness.queue.claims.claim(shards, worker="w"):
            wakeups.note(answer)
