"""What a definition did before an edit is removed a day after nobody does it any more."""

from __future__ import annotations

import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.repair import unused
from tests.support import queueing

DAY = unused.PATIENCE_SECONDS
OTHER = b'{"webhook":{"url":"https://hooks.example.com/other"}}'


async def edit(harness, generation, blob, **changes):
    """The schedule does something else now."""
    target = harness.queue.signed_blobs.digest("default", blob)
    arming = harness.arming(generation=generation, target=target, **changes)
    assert await harness.queue.writer.upsert([(arming, blob)], queueing.EPOCH) == ["applied"]


async def collect(harness, *, patience_seconds=DAY):
    """One walk over everything: how many were marked, and how many removed."""
    removed = [step.removed for step in await harness.sweep(patience_seconds=patience_seconds)]
    return sum(one.marked for one in removed), sum(one.blobs for one in removed)


async def has(harness, blob):
    target = harness.queue.signed_blobs.digest("default", blob)
    shard = sharding.shard_of(harness.definition().id, len(await harness.shards()))
    return await harness.server.redis.hexists(harness.server.shard(shard).blobs, target)


async def test_a_blob_that_is_used_stays_for_ever(harness):
    await harness.arm()
    assert await collect(harness, patience_seconds=0) == (0, 0)
    assert await collect(harness, patience_seconds=0) == (0, 0)
    assert await has(harness, queueing.BLOB)


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


async def test_a_blob_of_a_deleted_schedule_goes_the_same_way(harness):
    await harness.arm()
    known = harness.definition()
    await harness.queue.writer.remove(known.id, known.uid, known.namespace, queueing.EPOCH)
    assert await collect(harness) == (1, 0)
    assert await collect(harness, patience_seconds=0) == (0, 1)


async def test_a_blob_that_came_back_into_use_loses_its_mark(harness):
    await harness.arm()
    await edit(harness, 2, OTHER)
    await collect(harness)
    await edit(harness, 3, queueing.BLOB)
    assert await collect(harness, patience_seconds=0) == (1, 0), "the other one is marked now"
    assert await has(harness, queueing.BLOB)


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
        removed += step.removed.blobs
    assert removed == 0
    assert await has(harness, queueing.BLOB)


async def test_a_mark_that_is_wrong_is_taken_off(harness):
    await harness.arm()
    target = harness.queue.signed_blobs.digest("default", queueing.BLOB)
    shard = sharding.shard_of(harness.definition().id, len(await harness.shards()))
    blobs = harness.server.shard(shard).blobs
    await harness.server.redis.hset(blobs, f":{target}", 1)
    assert await collect(harness) == (0, 0)
    assert not await harness.server.redis.hexists(blobs, f":{target}")
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


async def test_an_older_term_removes_nothing(harness):
    await harness.arm()
    await edit(harness, 2, OTHER)
    await harness.queue.membership.open(4, messages.Epoch(queueing.EPOCH + 1))
    with pytest.raises(queue_errors.Fenced):
        await collect(harness)


async def test_many_blobs_are_looked_at_in_small_steps(harness):
    for number in range(300):
        blob = b'{"number":%d}' % number
        await edit(harness, number + 1, blob)
    marked = [step.removed.marked for step in await harness.sweep()]
    assert sum(marked) == 299
    assert max(marked) <= 200


# -- interned texts -----------------------------------------------------------------------------


async def _texts(harness):
    """Every text that has a number, of all shards."""
    found = []
    for shard in await harness.shards():
        interned = await harness.server.redis.hgetall(harness.server.shard(shard).interned)
        found += [text for name, text in interned.items() if name.startswith(b"n:")]
        assert {b"t:" + interned[name] for name in interned if name.startswith(b"n:")} == {
            name for name in interned if name.startswith(b"t:")
        }
    return found


async def _text_looks(harness, *, patience_seconds):
    steps = await harness.sweep(patience_seconds=patience_seconds)
    return sum(step.removed.texts for step in steps)


async def test_rules_and_digests_of_former_edits_lose_their_numbers_after_a_day(harness):
    await harness.arm()
    await edit(harness, 2, OTHER)
    before = await _texts(harness)
    assert await _text_looks(harness, patience_seconds=DAY) == 0
    assert await _text_looks(harness, patience_seconds=DAY) == 0
    assert await _text_looks(harness, patience_seconds=0) == 1
    after = await _texts(harness)
    old = harness.queue.signed_blobs.digest("default", queueing.BLOB).encode()
    assert set(before) - set(after) == {b"d" + old}
    assert await harness.queue.definitions.definition(harness.definition().id)


async def test_a_number_that_was_collected_is_asked_for_again(harness):
    """The one who arms remembers numbers; what it remembers may be gone."""
    await harness.arm()
    await edit(harness, 2, OTHER)
    for patience in (DAY, 0):
        await _text_looks(harness, patience_seconds=patience)
    await edit(harness, 3, queueing.BLOB)
    stored = await harness.queue.definitions.definition(harness.definition().id)
    assert stored.target == harness.queue.signed_blobs.digest("default", queueing.BLOB)


async def test_an_upsert_of_many_asks_again_too(harness):
    await harness.arm()
    known = harness.definition()
    await harness.queue.writer.remove(known.id, known.uid, known.namespace, queueing.EPOCH)
    for patience in (DAY, 0):
        await _text_looks(harness, patience_seconds=patience)
    wanted = [(harness.arming(uid=f"uid-{n}", name=f"s{n}"), queueing.BLOB) for n in range(20)]
    assert set(await harness.queue.writer.upsert(wanted, queueing.EPOCH)) == {"applied"}
    found = [
        one
        for shard in await harness.shards()
        async for one in queueing.stored(harness.queue, shard)
    ]
    for one in found:
        assert await harness.queue.definitions.definition(one.id) is not None
    assert len(found) == 20


async def test_a_text_that_came_back_into_use_loses_its_mark(harness):
    await harness.arm()
    await edit(harness, 2, OTHER)
    await _text_looks(harness, patience_seconds=DAY)
    await edit(harness, 3, queueing.BLOB)
    await _text_looks(harness, patience_seconds=0)
    old = harness.queue.signed_blobs.digest("default", queueing.BLOB).encode()
    assert b"d" + old in await _texts(harness)


async def test_a_namespace_keeps_its_number(harness):
    await harness.arm()
    known = harness.definition()
    await harness.queue.writer.remove(known.id, known.uid, known.namespace, queueing.EPOCH)
    for patience in (DAY, 0):
        await _text_looks(harness, patience_seconds=patience)
    assert await _texts(harness) == [b"ndefault"]
