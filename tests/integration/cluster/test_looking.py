"""Looking into a queue on a cluster, as the user that may do nothing else."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import delayqueue
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
