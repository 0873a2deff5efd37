"""What a definition did before an edit is removed a day after nobody does it any more."""

from __future__ import annotations

from duepoint.delayqueue import sharding
from duepoint.delayqueue.repair import sweeper
from tests.support import queueing

DAY = sweeper.PATIENCE_SECONDS
OTHER = b'{"webhook":{"url":"https://hooks.example.com/other"}}'


async def edit(harness, generation, blob, **changes):
    """The schedule does something else now."""
    target = harness.queue.signed_blobs.digest("default", blob)
    arming = harness.arming(generation=generation, target=target, **changes)
    assert await harness.queue.writer.upsert([(arming, blob)], queueing.EPOCH) == ["applied"]


async def collect(harness, *, patience_seconds=DAY):
    """One walk over everything: how many were marked, and how many removed."""
    steps = await harness.sweep(patience_seconds=patience_seconds)
    return sum(one.marked for one in steps), sum(one.blobs for one in steps)


async def has(harness, blob):
    target = harness.queue.signed_blobs.digest("default", blob)
    shard = sharding.shard_of(harness.definition().id, len(await harness.shards()))
    return await harness.server.redis.hexists(harness.server.shard(shard).blobs, target)


async def test_an_unused_blob_is_marked_and_removed_after_a_day_only(harness):
    await harness.arm()
    await edit(harness, 2, OTHER)
    assert await collect(harness) == (1, 0)
    assert await collect(harness) == (0, 0), "marked once, not yet old enough"
    assert await has(harness, queueing.BLOB)
    assert await collect(harness, patience_seconds=0) == (0, 1)
    assert not await has(harness, queueing.BLOB)
    assert await has(harness, OTHER)
    assert await collect(harness, patience_seconds=0) == (0, 0)


async def test_a_blob_that_comes_back_while_somebody_looks_is_not_removed(harness):
    await harness.arm()
    await edit(harness, 2, OTHER)
    await collect(harness)
    shard = sharding.shard_of(harness.definition().id, len(await harness.shards()))
    walk = harness.queue.sweeper.sweep(
        shard, queueing.EPOCH, due_of=lambda _: None, patience_seconds=0
    )
    removed = 0
    async for step in walk:
        if step.looked_at:
            await edit(harness, 3, queueing.BLOB)  # all definitions have been read
        removed += step.blobs
    assert removed == 0
    assert await has(harness, queueing.BLOB)


async def test_nothing_goes_from_a_shard_with_a_definition_that_cannot_be_read(harness):
    await harness.arm()
    await edit(harness, 2, OTHER)
    known = harness.definition()
    shard = sharding.shard_of(known.id, len(await harness.shards()))
    bucket = harness.server.shard(shard).bucket_of(known.id, harness.server.buckets)
    await harness.server.redis.hset(bucket, b"another!", b"\xffof another version")
    assert await collect(harness, patience_seconds=0) == (0, 0)
    assert await collect(harness, patience_seconds=0) == (0, 0)
