"""The script that writes many new schedules at once."""

from __future__ import annotations


async def _fill(bench, schedules, *, due=5_000_000, blob=b"sealed", occurrences=()):
    """Schedules as id -> record, all in one bucket."""
    arguments = bench.arguments(numbers=(await bench.intern("ntext"))[1:])
    bucket = bench.names.bucket("n1", 0)
    arguments.put("blobs", arguments.run([b"digest", blob]))
    pairs = [value for pair in schedules.items() for value in pair]
    arguments.put("buckets", [(8, *arguments.run(pairs))])
    chains = [value for id_ in schedules for value in (str(due), id_ + b"vers")]
    points = [*chains, *(value for member, _ in occurrences for value in (str(due), member))]
    arguments.put("lanes", [(str(bench.lane), 9, *arguments.run(points))])
    arguments.put("open", arguments.run([value for pair in occurrences for value in pair]))
    n = bench.names
    keys = [n.meta, n.heads, n.blobs, n.wake, n.interned, n.occ, n.occrec]
    keys += [bucket, n.lane(bench.lane)]
    return await bench.run("fill", keys, arguments)


SCHEDULES = {b"schedul1": b"record 1", b"schedul2": b"record 2", b"schedul3": b"record 3"}


async def test_definitions_chains_blob_and_head_are_written_together(bench):
    assert await _fill(bench, SCHEDULES) == []
    assert await bench.client.hgetall(bench.names.bucket("n1", 0)) == SCHEDULES
    assert await bench.scores() == {id_ + b"vers": 5_000_000 for id_ in SCHEDULES}
    assert await bench.client.hget(bench.names.blobs, b"digest") == b"sealed"
    assert await bench.head() == 5_000_000


async def test_open_slots_are_written_with_their_schedules(bench):
    member = b"schedul1" + b"vers" + b"\x01" + (77).to_bytes(8, "big")
    await _fill(bench, SCHEDULES, occurrences=[(member, b"its record")])
    assert (await bench.scores())[member] == 5_000_000
    assert await bench.client.zscore(bench.names.occ, member) == 0
    assert await bench.client.hget(bench.names.occrec, member) == b"its record"


async def test_one_that_stands_already_keeps_everything_from_being_written(bench):
    bucket = bench.names.bucket("n1", 0)
    await bench.client.hset(bucket, b"schedul2", b"of somebody else")
    places = await _fill(bench, SCHEDULES)
    assert len(places) == 1
    assert await bench.client.hgetall(bucket) == {b"schedul2": b"of somebody else"}
    assert await bench.scores() == {}
    assert await bench.client.hget(bench.names.blobs, b"digest") is None


async def test_a_shard_that_is_being_emptied_takes_nothing(bench):
    await bench.client.hset(bench.names.meta, "state", "draining")
    assert len(await _fill(bench, SCHEDULES)) == len(SCHEDULES)
    assert await bench.scores() == {}


async def test_a_blob_that_was_marked_as_unused_is_used_again(bench):
    await bench.client.hset(bench.names.blobs, mapping={b"digest": b"sealed", b":digest": b"17"})
    await _fill(bench, SCHEDULES)
    assert await bench.client.hget(bench.names.blobs, b":digest") is None
