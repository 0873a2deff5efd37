"""Each thing that makes a server unfit is one line that says what to write, and a metric."""

from __future__ import annotations

import pytest
import redis
from prometheus_client import REGISTRY

from duepoint.delayqueue import delayqueue, serverhealth
from duepoint.delayqueue.wire import connecting
from tests.support import queueing, redisusers

USUAL = "hash-max-listpack-value", "hash-max-listpack-entries"


async def problems_for(url, key_prefix, role):
    queue = delayqueue.connect(
        url,
        blob_key=queueing.BLOB_KEY,
        prefix=key_prefix,
        server=connecting.Server(url=redisusers.url_for(url, role)),
    )
    try:
        return await queue.health.problems(fills=role == "operator")
    finally:
        await queue.close()


def is_told(check):
    return REGISTRY.get_sample_value("duepoint_queue_problems", {"check": check})


@pytest.fixture
def server(own_server):
    """Its limits are as they should be: only what a test changes is wrong."""
    with own_server.client() as client:
        for name in USUAL:
            client.config_set(name, 512)
        yield own_server, client


@pytest.mark.parametrize("role", ["operator", "worker"])
async def test_the_shipped_users_find_nothing_wrong(server, role):
    assert await problems_for(server[0].url, "dp:", role) == ()
    assert [is_told(check) for check in serverhealth.CHECKS] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", USUAL)
async def test_a_limit_that_may_not_be_set_is_named_with_what_to_write(server, name):
    server[1].config_set(name, 64)
    (line,) = await problems_for(server[0].url, "dp:", "operator")
    assert line.startswith(f"{name} is below 512 and may not be set from here")
    assert f"write {name} 512" in line
    assert "\n" not in line
    assert is_told("listpack") == 1
    assert server[1].config_get(name)[name] == "64"


@pytest.mark.parametrize("name", USUAL)
async def test_a_limit_that_may_be_set_is_set(server, name):
    server[1].config_set(name, 64)
    harness = await queueing.redis_harness(server[0].url, "dp:", users=False)
    assert await harness.queue.health.problems(fills=True) == ()
    assert server[1].config_get(name)[name] == "512"
    await harness.close()


@pytest.mark.parametrize("role", ["operator", "worker"])
async def test_no_configuration_is_read_because_that_reads_passwords(server, role):
    """``CONFIG GET *`` gives the administrator's password to whoever has a process's token."""
    with (
        redis.Redis.from_url(redisusers.url_for(server[0].url, role)) as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.config_get("requirepass")
    before = server[1].info("commandstats").get("cmdstat_config|get", {}).get("calls", 0)
    await problems_for(server[0].url, "dp:", role)
    after = server[1].info("commandstats").get("cmdstat_config|get", {}).get("calls", 0)
    assert after == before


@pytest.mark.parametrize("role", ["operator", "worker"])
async def test_rights_that_are_missing_are_named_together(server, role):
    server[1].execute_command("ACL", "SETUSER", redisusers.name(role), "-zadd", "-spublish")
    (line,) = await problems_for(server[0].url, "dp:", role)
    assert line.endswith("let it ~dp:* &dp:* +zadd +spublish")
    assert is_told("rights") == 1
