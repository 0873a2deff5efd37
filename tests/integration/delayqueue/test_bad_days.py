"""What the queue does when its server is emptied, full, restarted, silent, or somebody else's."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from duepoint import errors
from duepoint.delayqueue import delayqueue, messages, sharding
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.definitions import signedblobs
from duepoint.schedules import points
from tests.support import queueing
from tests.support.queueing import BLOB, EPOCH, moved


async def test_a_full_server_refuses_arming_whole_and_lets_the_rest_go_on(lonely, own_server):
    await lonely.arm(name="claimed")
    await lonely.arm(name="waiting", due_in=-0.5)
    (first, *_) = await lonely.claim_all(batch=1)
    with own_server.client() as client:
        client.config_set("maxmemory", 1)
    before = await lonely.total()
    with pytest.raises(errors.QueueUnavailable):
        await lonely.arm(name="refused")
    many = [(lonely.arming(name=f"s{n}", uid=str(uuid.uuid4())), queueing.BLOB) for n in range(9)]
    with pytest.raises(errors.QueueUnavailable):
        await lonely.queue.writer.upsert(many, EPOCH)
    with pytest.raises(errors.QueueUnavailable):
        await lonely.queue.streams.append(queueing.an_entry())
    assert await lonely.total() == before
    settled = await lonely.queue.settlements.settle(
        first,
        messages.Settlement(
            chains=(moved(first.points[0], 1),),
            occurrences=(queueing.a_retry(first.points[0]),),
            outcomes=b"ran",
        ),
    )
    assert settled.applied == 1
    assert await lonely.claim_all()
    assert (await lonely.queue.membership.beat("w")).workers == ("w",)
    with own_server.client() as client:
        client.config_set("maxmemory", 0)
    assert await lonely.arm(name="refused") is messages.Armed.APPLIED
    assert set(await lonely.queue.writer.upsert(many, EPOCH)) == {messages.Armed.APPLIED}


async def test_whoever_becomes_the_leader_of_a_full_server_can_make_room(lonely, own_server):
    """A full server takes nothing new, and gives what is there away."""
    await lonely.arm(name="too much", namespace="team-a")
    known = lonely.definition(name="too much", namespace="team-a")
    run = points.manual(known.id, known.created_us, "a-run", points.PointKind.MANUAL)
    await lonely.queue.occurrences.enqueue(known, run, messages.OccurrenceRecord(), EPOCH)
    before = (await lonely.total()).points
    successor = queueing.a_queue(own_server.url, lonely.server.keys.prefix, users=False)
    await successor.start()
    with own_server.client() as client:
        client.config_set("maxmemory", 1)
    term = messages.Epoch(EPOCH + 1)
    await successor.membership.open(4, term)
    assert (await successor.concurrency.finish(known, ["a-job"])).removed == 0
    assert await successor.occurrences.withdraw(known, run, term) is messages.Armed.APPLIED
    assert (
        await successor.writer.remove(known.id, known.uid, "team-a", term) is messages.Armed.APPLIED
    )
    with pytest.raises(errors.QueueUnavailable):
        await successor.writer.upsert([(lonely.arming(name="new", namespace="team-b"), BLOB)], term)
    assert (await lonely.total()).points == before - 2
    await successor.close()


async def test_a_cancelled_command_leaves_no_reply_for_the_next_one(redis_server, key_prefix):
    # Cancelled after every number of turns of the event loop that a look takes.
    made = await queueing.redis_harness(redis_server.url, key_prefix, users=False, connections=1)
    shards = await made.shards()
    for turns in range(40):
        looking = asyncio.create_task(made.queue.claims.claim(shards, worker="w"))
        for _ in range(turns):
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.wait({looking}, timeout=60)
        assert looking.done()
        echo = str(turns).encode()
        assert await made.server.redis.execute_command("ECHO", echo) == echo
    await made.close()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://localhost", errors.InvalidSetting),
        ("redis://localhost:notaport/0", errors.InvalidSetting),
        ("redis://127.0.0.1:1/0", errors.QueueUnavailable),
        ("redis://no-such-host.invalid:6379/0", errors.QueueUnavailable),
    ],
)
async def test_a_wrong_address_is_told_by_what_to_do_about_it(url, kind):
    async def connect():
        queue = delayqueue.connect(url, blob_key=queueing.BLOB_KEY)
        try:
            await queue.start()
        finally:
            await queue.close()

    with pytest.raises(kind):
        await connect()


async def test_a_forged_blob_is_refused(harness):
    await harness.arm()
    stored = harness.definition()
    shard = sharding.shard_of(stored.id, 4)
    names = harness.server.shard(shard)
    forged = signedblobs.SignedBlobs(b"the attacker's own key").pack(b"rm -rf")
    await harness.server.redis.hset(names.blobs, stored.target, forged)
    with pytest.raises(queue_errors.BlobForged):
        await harness.queue.definitions.blob("default", stored.target, shard)
