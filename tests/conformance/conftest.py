"""The queue of these tests, and settings of generated cases, which ``generatedcases`` makes."""

from __future__ import annotations

import pytest

from tests.support import (
    generatedcases,  # noqa: F401 - sets how cases are generated
    queueing,
    redisserver,
)


@pytest.fixture(params=[*redisserver.KINDS, "cluster"])
def server(request, shared_servers, shared_clusters):
    """Every kind of server; a module that runs on fewer overrides this."""
    return (
        shared_clusters("valkey") if request.param == "cluster" else shared_servers(request.param)
    )


@pytest.fixture
def queue_options():
    """Options of ``queueing.redis_harness``; a module that sets some overrides this."""
    return {}


@pytest.fixture
async def harness(server, queue_options, key_prefix):
    made = await queueing.redis_harness(server.url, key_prefix, **queue_options)
    yield made
    await made.close()
