"""Looking into a queue on a cluster, as the user that may do nothing else."""

from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.delayqueue import delayqueue, messages
from tests.support import queueing, redisusers


@pytest.fixture
async def looking(clustered, shared_cluster):
    """The same index as the viewer sees it."""
    queue = delayqueue.connect(
        shared_cluster.url,
        blob_key=queueing.BLOB_KEY,
        prefix=clustered.server.keys.prefix,
        opened=redisusers.servers_for(shared_cluster.url, "viewer", connections=8),
    )
    await queue.layouts.read()
    yield queue
    await queue.close()


async def test_counts_points_and_memory_are_those_of_all_nodes(clustered, looking):
    for number in range(40):
        await clustered.arm(name=f"n{number}", namespace=f"ns{number}", due_in=number - 20)
    shards = await looking.counts.shard_views()
    assert sum(shard.definitions for shard in shards) == 40
    assert sum(shard.armed for shard in shards) == 40
    assert all(shard.is_exact for shard in shards)
    totals = await looking.counts.totals()
    assert totals.points == 40
    assert totals.due == sum(shard.due for shard in shards)
    names = [sight.known.name for sight in await looking.upcoming.next_points(40)]
    assert names == [f"n{number}" for number in range(40)]
    assert (await looking.counts.index_view()).memory_used > 3_000_000, "three nodes' together"


async def test_claims_and_dead_letters_are_seen_wherever_they_are(clustered, looking):
    for number in range(20):
        await clustered.arm(name=f"n{number}", namespace=f"ns{number}", due_in=-1)
    claims = await clustered.claim_all(worker="w", lease_seconds=60)
    leases = [lease async for lease in looking.held_claims.all()]
    assert sum(len(lease.points) for lease in leases) == 20
    for claim in claims:
        letter = messages.DeadLetter(member=claim.points[0].member, entry={"reason": "Timeout"})
        await clustered.queue.settlements.settle(claim, messages.Settlement(dead=(letter,)))
    assert len([letter async for letter in looking.dead_letters.all()]) == len(claims)


async def test_every_node_is_checked(clustered, shared_cluster):
    assert "eviction" not in " ".join(await clustered.queue.health.problems())
    shared_cluster.ask(shared_cluster.nodes[-1], "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        assert "maxmemory-policy" in " ".join(await clustered.queue.health.problems())
    finally:
        shared_cluster.ask(
            shared_cluster.nodes[-1], "CONFIG", "SET", "maxmemory-policy", "noeviction"
        )


async def test_a_node_that_is_asked_as_if_it_stood_alone_says_what_to_write(shared_cluster):
    said = []
    for node in shared_cluster.nodes:
        queue = delayqueue.connect(f"redis://127.0.0.1:{node.port}", blob_key=queueing.BLOB_KEY)
        with pytest.raises(errors.TryLater) as trouble:
            await queue.layouts.read()
        said.append("write redis+cluster:// instead" in str(trouble.value))
        await queue.close()
    assert sorted(said) == [False, True, True], "one has the slot, and no index in it"
