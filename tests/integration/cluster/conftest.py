"""A queue on a cluster."""

from __future__ import annotations

import pytest

from tests.support import queueing


@pytest.fixture
async def clustered(shared_cluster, key_prefix):
    # The shards of all tests share their slots: what others left would move along.
    for node in shared_cluster.nodes:
        shared_cluster.ask(node, "FLUSHALL")
    made = await queueing.redis_harness(shared_cluster.url, key_prefix, shards=8)
    yield made
    await made.close()
