"""Each thing that makes a server unfit is one line that says what to write, and a metric."""

from __future__ import annotations

import asyncio
import uuid

import pytest
import redis
from prometheus_client import REGISTRY

from duepoint import services
from duepoint.delayqueue import delayqueue, serverhealth, sharding
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


async def test_looking_leaves_nothing_behind(server):
    harness = await queueing.redis_harness(server[0].url, "dp:", shards=4, users=False)
    keys = set(server[1].scan_iter(count=1000))
    assert await harness.queue.health.problems(fills=True) == ()
    assert set(server[1].scan_iter(count=1000)) == keys
    await harness.close()


async def test_buckets_stay_compact_with_the_longest_names_and_many_schedules(server):
    harness = await queueing.redis_harness(server[0].url, "dp:", shards=1, users=False)
    await harness.queue.health.problems(fills=True)
    for first in range(0, 3000, 500):
        await asyncio.gather(
            *(
                harness.arm(
                    name=f"{'n' * 240}-{number}", uid=str(uuid.UUID(int=number)), due_in=3600
                )
                for number in range(first, first + 500)
            )
        )
    buckets = [key for key in server[1].scan_iter(count=1000) if b":defs:" in key]
    assert {server[1].object("ENCODING", key) for key in buckets} == {b"listpack"}
    assert max(server[1].hlen(key) for key in buckets) > 64
    await harness.close()


async def test_a_bucket_beyond_the_limits_is_noticed_to_be_a_table(server):
    """The guard itself: without the limits the same definitions are stored otherwise."""
    server[1].config_set("hash-max-listpack-value", 64)
    harness = await queueing.redis_harness(server[0].url, "dp:", shards=1)
    await harness.arm(name="n" * 200)
    names = harness.server.shard(sharding.all_shards(await harness.queue.layouts.read())[0])
    stored = harness.definition(name="n" * 200)
    bucket = names.bucket_of(stored.id, harness.server.buckets)
    assert server[1].object("ENCODING", bucket) == b"hashtable"
    (line,) = await problems_for(server[0].url, "dp:", "operator")
    assert "hash-max-listpack-value" in line
    await harness.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_an_evicting_server_is_named_with_what_to_write(server, policy):
    server[1].config_set("maxmemory-policy", policy)
    (line,) = await problems_for(server[0].url, "dp:", "worker")
    assert line.startswith(f"maxmemory-policy is {policy}")
    assert line.endswith("write maxmemory-policy noeviction")
    assert is_told("eviction") == 1


@pytest.mark.parametrize("role", ["operator", "worker"])
async def test_rights_that_are_missing_are_named_together(server, role):
    server[1].execute_command("ACL", "SETUSER", redisusers.name(role), "-zadd", "-spublish")
    (line,) = await problems_for(server[0].url, "dp:", role)
    assert line.endswith("let it ~dp:* &dp:* +zadd +spublish")
    assert is_told("rights") == 1


async def test_the_wrong_keys_are_as_bad_as_no_rights(server):
    """A prefix that the user's rule does not cover, with the script allowed on it."""
    rule = ("resetkeys", "~dp:{ctl}*", "resetchannels")
    server[1].execute_command("ACL", "SETUSER", redisusers.name("worker"), *rule)
    (line,) = await problems_for(server[0].url, "dp:", "worker")
    assert "~dp:* &dp:*" in line


def test_readiness_repeats_every_line():
    health = services.Health()
    serverhealth.report(("one is wrong", "so is another"), health)
    assert health.troubles() == {"queue server": "one is wrong; so is another"}
    serverhealth.report((), health)
    assert health.troubles() == {}


async def test_an_index_keeps_the_number_of_buckets_that_it_was_made_with(server):
    made = await queueing.redis_harness(server[0].url, "dp:", shards=1, users=False, buckets=3)
    for number in range(30):
        await made.arm(name=f"n{number}", uid=str(uuid.UUID(int=number)))
    other = await queueing.redis_harness(server[0].url, "dp:", shards=1, users=False, buckets=50)
    (shard,) = await other.shards()
    assert len([stored async for stored in queueing.stored(other.queue, shard)]) == 30
    await other.arm(name="n30")
    buckets = [key for key in server[1].scan_iter(count=1000) if b":defs:" in key]
    assert len(buckets) == 3
    await made.close()
    await other.close()
