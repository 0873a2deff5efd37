"""A queue of few shards, a mover, and the ways in which both are disturbed."""

from __future__ import annotations

import pytest

from tests.support import queueing


@pytest.fixture
async def place(redis_server, key_prefix):
    """A queue of four shards on a server that others use too."""
    harness = await queueing.redis_harness(redis_server.url, key_prefix, shards=4)
    yield harness
    await harness.close()
