"""Who has stolen the login of a process to Redis: what the server lets them do, and what not.

Each login is of a user that the chart ships. SECURITY.md names these tests beside its sentences.
"""

from __future__ import annotations

import contextlib
import zlib

import pytest
import redis

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import sharding
from duepoint.delayqueue.definitions import signedblobs
from tests.support import queueing
from tests.support.queueing import SECOND_US

HOUR = 3600.0
PROCESSES = ("worker", "api", "operator")


@pytest.fixture(params=PROCESSES)
def thief(request, own_server):
    with contextlib.closing(redis.Redis.from_url(own_server.url_of(request.param))) as client:
        yield client


def _places(thief, harness) -> list[tuple[str, str, bytes, list[bytes]]]:
    """Heads, lane, its name and its points, of every shard and namespace."""
    found = []
    for index in range(4):
        names = harness.server.shard(index)
        for head in filter(None, thief.zrange(names.heads, 0, -1)):
            lane = names.lane(head.decode())
            found.append((names.heads, lane, head, thief.zrange(lane, 0, -1)))
    return found


def _make_due(thief, harness, due_us: int) -> None:
    for heads, lane, head, members in _places(thief, harness):
        thief.zadd(lane, dict.fromkeys(members, due_us))
        thief.zadd(heads, {head: due_us})


async def test_a_stolen_login_fires_points_of_every_namespace(thief, lonely):
    for namespace in ("team-a", "team-b"):
        await lonely.arm(namespace=namespace, uid=f"of-{namespace}", due_in=HOUR)
    assert await lonely.claim_all() == []
    _make_due(thief, lonely, lonely.now_us() - SECOND_US)
    claims = await lonely.claim_all()
    assert len(queueing.members(claims)) == 2


async def test_a_stolen_login_holds_points_up_and_loses_them(thief, lonely):
    await lonely.arm(due_in=-1.0)
    _make_due(thief, lonely, lonely.now_us() + int(HOUR) * SECOND_US)
    assert await lonely.claim_all() == []
    for heads, lane, number, members in _places(thief, lonely):
        thief.zrem(lane, *members)
        thief.zrem(heads, number)
    assert _places(thief, lonely) == []
    assert await lonely.claim_all() == []


async def test_a_stolen_login_reads_actions_and_writes_none_that_is_acted_on(thief, lonely):
    """The key that signs them is not in Redis."""
    await lonely.arm()
    stored = lonely.definition()
    shard = sharding.shard_of(stored.id, 4)
    blobs = lonely.server.shard(shard).blobs
    packed = thief.hget(blobs, stored.target)
    assert zlib.decompress(packed[packed.index(b"x\x9c") :]) == queueing.BLOB
    forged = signedblobs.SignedBlobs(b"a key of the thief's").pack(b'{"url":"https://evil"}')
    thief.hset(blobs, stored.target, forged)
    with pytest.raises(queue_errors.BlobForged):
        await lonely.queue.definitions.blob("default", stored.target, shard)


async def test_a_stolen_login_touches_no_other_keys_and_no_configuration(thief, own_server):
    with own_server.client() as admin:
        admin.set("of-another-program", "canary")
    for command in (
        ("GET", "of-another-program"), ("SET", "of-another-program", "x"),
        ("ZADD", "of-another-program", "1", "x"), ("KEYS", "*"), ("CONFIG", "GET", "*"),
        ("ACL", "LIST"), ("FLUSHALL",),
    ):  # fmt: skip
        with pytest.raises(redis.ResponseError, match=r"(?i)permission"):
            thief.execute_command(*command)


async def test_a_stolen_login_of_the_operator_takes_whole_shards_away(lonely, own_server):
    await lonely.arm(due_in=HOUR)
    with contextlib.closing(redis.Redis.from_url(own_server.url_of("operator"))) as thief:
        for index in range(4):
            names = lonely.server.shard(index)
            thief.unlink(names.meta, names.heads, names.blobs, names.texts)
    with pytest.raises(queue_errors.Uninitialised):
        await lonely.look()
