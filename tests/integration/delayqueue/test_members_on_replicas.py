"""How safe a change of members is before it is answered: real replicas and real files."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.members import values
from duepoint.delayqueue.members.values import Outcome
from duepoint.delayqueue.wire import nodes
from duepoint.schedules import actions
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord, setspec
from tests.support import queueing
from tests.support.redisserver import RedisServer
from tests.support.waiting import wait_until

DAILY = rules.Rule(timing=rules.Timing(schedules=("0 9 * * *",)))
BLOB = actions.encode(actions.Action(target=actions.StreamAction(name="ticks")))
IN_MEMORY = nodes.Safety(replicas=1, timeout_ms=5_000)
ON_DISK = nodes.Safety(replicas=1, on_disk=True, timeout_ms=5_000)
SOON = nodes.Safety(replicas=1, timeout_ms=200)


@pytest.fixture
def servers(tmp_path):
    """A primary and its replica, both with an append-only file."""
    made = []
    for name in ("primary", "replica"):
        folder = tmp_path / name
        folder.mkdir()
        made.append(RedisServer("valkey", folder, "--appendonly", "yes"))
    primary, replica = made
    primary.start()
    replica.start()
    with replica.client() as client:
        client.replicaof("127.0.0.1", primary.port)
        wait_until(
            lambda: client.info("replication")["master_link_status"] == "up", "the replica follows"
        )
    yield primary, replica
    replica.resume()
    replica.stop()
    primary.stop()


@pytest.fixture
async def population(servers):
    """The members of a set on the primary."""
    primary, _ = servers
    harness = await queueing.redis_harness(primary.url, "dp:", users=False)
    queue = harness.queue
    set_ = setrecord.SetRecord(
        namespace="shop", name="reminders", uid=str(uuid.uuid4()), generation=1,
        state=setrecord.SetState.READY, spread=0,
        target=queue.signed_blobs.digest("shop", BLOB), settings=setspec.SetSettings(),
    )  # fmt: skip
    await queue.sets.store(set_, BLOB, queueing.EPOCH)
    yield set_, queue.members
    await harness.close()


def _writes(*names):
    return [values.MemberWrite(id=name, rule=DAILY) for name in names]


async def _is_on(server, name):
    """Whether a server has a member of this name, whatever else it has."""

    def found():
        with server.client() as client:
            return any(
                name.encode() in record
                for key in client.scan_iter(match="dp:*defs*", count=1000)
                for record in client.hvals(key)
            )

    return await asyncio.to_thread(found)


@pytest.mark.parametrize("safety", [IN_MEMORY, ON_DISK], ids=["in memory", "on disk"])
async def test_what_is_answered_as_safe_is_on_the_replica(servers, population, safety):
    set_, members = population
    (written,) = await members.put(set_, _writes("a-member"), safety=safety)
    assert written.outcome is Outcome.CREATED
    servers[0].pause()  # what the replica has not got by now it does not get
    try:
        assert await _is_on(servers[1], "a-member")
    finally:
        servers[0].resume()
    removal = values.MemberRemoval(id="a-member")
    (removed,) = await members.remove(set_, [removal], safety=safety)
    assert removed.outcome is Outcome.REMOVED
    assert not await _is_on(servers[1], "a-member")


async def test_a_replica_that_does_not_answer_makes_a_change_that_is_stored_and_not_safe(
    servers, population
):
    set_, members = population
    _, replica = servers
    replica.pause()
    with pytest.raises(queue_errors.NotDurable, match="1 replicas in memory were requested"):
        await members.put(set_, _writes("late"), safety=SOON)
    (stored,) = await members.lookups.get(set_, ["late"])
    assert stored.id == "late"
    (without,) = await members.put(set_, _writes("without"))
    assert without.outcome is Outcome.CREATED
    replica.resume()
    (again,) = await members.put(set_, _writes("late"), safety=IN_MEMORY)
    assert again.outcome is Outcome.UNCHANGED
