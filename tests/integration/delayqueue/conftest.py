"""A queue on a shared server, and one on a server of its own."""

from __future__ import annotations

import pytest

from tests.support import queueing


@pytest.fixture
async def harness(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix)
    yield made
    await made.close()


@pytest.fixture
async def lonely(own_server, key_prefix):
    """The only user of its server, which the test may maltreat (``own_server``)."""
    made = await queueing.redis_harness(own_server.url, key_prefix)
    yield made
    await made.close()
