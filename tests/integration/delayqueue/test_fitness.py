"""Each thing that makes a server unfit is one line that says what to write, and a metric."""

from __future__ import annotations

import functools

import pytest
import redis
from prometheus_client import REGISTRY

from duepoint.delayqueue import delayqueue, serverhealth
from tests.support import queueing, redisusers

USUAL = "hash-max-listpack-value", "hash-max-listpack-entries"


async def problems_for(url, role):
    queue = delayqueue.connect(redisusers.url_for(url, role), blob_key=queueing.BLOB_KEY)
    problems = await queue.health.problems(fills=role == "operator")
    await queue.close()
    return problems


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
async def test_the_shipped_users_find_nothing_wrong_and_read_no_configuration(server, role):
    """``CONFIG GET *`` gives the administrator's password to whoever has a process's token."""
    server[1].config_resetstat()
    assert await problems_for(server[0].url, role) == ()
    assert [is_told(check) for check in serverhealth.CHECKS] == [0, 0, 0, 0]
    assert "cmdstat_config|get" not in server[1].info("commandstats")
    with (
        redis.Redis.from_url(redisusers.url_for(server[0].url, role)) as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.config_get("requirepass")


@pytest.mark.parametrize("name", USUAL)
async def test_a_limit_that_may_not_be_set_is_named_with_what_to_write(server, name):
    server[1].config_set(name, 64)
    (line,) = await problems_for(server[0].url, "operator")
    assert line.startswith(f"{name} is below 512 and this user may not change that")
    assert f"set {name} 512" in line
    assert "\n" not in line
    assert is_told("listpack") == 1
    assert server[1].config_get(name)[name] == "64"


@pytest.mark.parametrize("name", USUAL)
async def test_a_review_at_rest_reads_the_policy_alone_and_sets_limits_later(
    server, name, monkeypatch
):
    monkeypatch.setattr(serverhealth, "_REVIEW_SECONDS", 0.0)
    harness = await queueing.redis_harness(server[0].url, "dp:", users=False)
    review = functools.partial(harness.queue.health.review, fills=True)
    assert await review() == ()
    server[1].config_resetstat()
    assert await review() == ()
    assert server[1].info("commandstats").keys() == {"cmdstat_config|resetstat", "cmdstat_info"}
    server[1].config_set("maxmemory-policy", "allkeys-lru")
    assert "set maxmemory-policy noeviction" in "".join(await review())
    assert is_told("eviction") == 1
    server[1].config_set("maxmemory-policy", "noeviction")
    assert await review() == ()
    for is_stored in (True, False):
        server[1].config_set(name, 64)
        assert await review() == ()
        assert server[1].config_get(name)[name] == "64"
        if is_stored:
            await harness.arm()
        else:
            harness.servers.changes.note_upheaval()
        assert await review() == ()
        assert server[1].config_get(name)[name] == "512"
    await harness.close()


@pytest.mark.parametrize("role", ["operator", "worker"])
async def test_rights_that_are_missing_are_named_together(server, role):
    server[1].execute_command("ACL", "SETUSER", redisusers.name(role), "-zadd", "-spublish")
    (line,) = await problems_for(server[0].url, role)
    assert line.endswith("grant it ~dp:* &dp:* +zadd +spublish")
    assert is_told("rights") == 1
