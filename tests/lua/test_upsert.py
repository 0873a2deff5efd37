"""The script that stores definitions: many rows in one call, each whole or not at all."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue.definitions import codec
from duepoint.schedules import definition
from tests.support import queueing

DUE = "5000000"


def _definition(number, **changes):
    values = {
        **queueing.USUAL,
        "uid": str(uuid.UUID(int=number)),
        "name": f"s{number}",
        "target": "digest",
        **changes,
    }
    return definition.Definition(**values)


def _record(known):
    return codec.pack(known, namespace=1, target=1, rule=1)


async def _upsert(bench, known, *, due=DUE, blob=b"signed", options=None, numbers=None):
    """Definitions, all in one bucket and lane; ``options`` by index."""
    numbers = (await bench.intern("ntext"))[1:] if numbers is None else numbers
    keys = bench.names.bucket("n1", 0), bench.names.lane(bench.lane)
    call = bench.call("upsert", *keys, numbers=numbers)
    call.put(blobs=call.run([b"digest", blob]))
    first, last = call.run(value for one in known for value in (one.id, _record(one), due))
    by_row = {
        first + 3 * row: {
            name: call.run(value) if name == "open"
            else call.position(value) if name == "replaces" else value
            for name, value in of_row.items()
        }
        for row, of_row in (options or {}).items()
    }  # fmt: skip
    call.put(lanes=[(str(bench.lane), 10)], groups=[9, 1, first, last], options=by_row)
    return await bench.run(call)


async def _stored(bench):
    return await bench.client.hgetall(bench.names.bucket("n1", 0))


def _chain(known):
    return known.id + known.timing_version


THREE = [_definition(number) for number in (1, 2, 3)]


async def test_definitions_chains_blob_and_head_are_written_together(bench):
    assert await _upsert(bench, THREE) == [b"APPLIED"] * 3
    assert await _stored(bench) == {one.id: _record(one) for one in THREE}
    assert await bench.scores() == {_chain(one): 5_000_000 for one in THREE}
    assert await bench.client.hget(bench.names.blobs, b"digest") == b"signed"
    assert await bench.head() == 5_000_000


async def test_a_row_without_a_due_has_no_chain(bench):
    assert await _upsert(bench, THREE, due="") == [b"APPLIED"] * 3
    assert await bench.scores() == {}


async def test_open_slots_are_written_with_their_schedules(bench):
    member = _chain(THREE[0]) + b"\x01" + (77).to_bytes(8, "big")
    options = {0: {"open": [DUE, member, b"its record"]}}
    await _upsert(bench, THREE, options=options)
    assert (await bench.scores())[member] == 5_000_000
    assert await bench.client.zscore(bench.names.occ, member) == 0
    assert await bench.client.hget(bench.names.occrec, member) == b"its record"


async def test_each_row_has_its_own_answer_and_its_neighbours_are_written(bench):
    first, second, third = THREE
    same_id = codec.pack(_definition(2, uid=str(uuid.UUID(int=9))), namespace=1, target=1, rule=1)
    bucket = bench.names.bucket("n1", 0)
    await bench.client.hset(bucket, mapping={first.id: _record(first), second.id: same_id})
    gone = _definition(4)
    answers = await _upsert(bench, [*THREE, gone], options={3: {"keep_chain": True, "after": 0}})
    assert answers == [b"UNCHANGED", b"COLLISION", b"APPLIED", b"CHANGED"]
    stored = await _stored(bench)
    assert stored == {first.id: _record(first), second.id: same_id, third.id: _record(third)}
    assert await bench.scores() == {_chain(third): 5_000_000}


async def test_nothing_is_written_where_no_row_is(bench):
    bucket = bench.names.bucket("n1", 0)
    await bench.client.hset(bucket, mapping={one.id: _record(one) for one in THREE})
    assert await _upsert(bench, THREE) == [b"UNCHANGED"] * 3
    assert await bench.client.hget(bench.names.blobs, b"digest") is None


async def test_a_newer_generation_takes_the_former_chain_away(bench):
    await _upsert(bench, THREE)
    edited = msgspec.structs.replace(THREE[1], generation=2, timing_generation=2)
    assert await _upsert(bench, [edited], due="7000000") == [b"APPLIED"]
    scores = {_chain(THREE[0]): 5_000_000, _chain(THREE[2]): 5_000_000, _chain(edited): 7_000_000}
    assert await bench.scores() == scores


async def test_a_record_that_cannot_be_read_is_made_anew(bench):
    await bench.client.hset(bench.names.bucket("n1", 0), THREE[0].id, b"of somebody else")
    assert await _upsert(bench, THREE) == [b"APPLIED"] * 3
    assert await _stored(bench) == {one.id: _record(one) for one in THREE}


async def test_a_shard_that_is_being_emptied_takes_nothing_new(bench):
    await bench.client.hset(bench.names.meta, "state", "draining")
    assert await _upsert(bench, THREE) == [b"ABSENT"] * 3
    assert await bench.scores() == {}


async def test_a_row_on_its_way_to_another_shard_keeps_all_from_being_written(bench):
    await bench.client.hset(bench.names.meta, "state", "draining")
    await bench.client.hset(bench.names.leases, b"i" + THREE[2].id, b"a batch")
    assert await _upsert(bench, THREE) == [b"BUSY"]
    assert await _stored(bench) == {}


async def test_a_number_that_stands_for_nothing_keeps_all_from_being_written(bench):
    with pytest.raises(queue_errors.LayoutChanged):
        await _upsert(bench, THREE, numbers=[77])
    assert await _stored(bench) == {}


async def test_a_blob_that_was_marked_as_unused_is_used_again(bench):
    await bench.client.hset(bench.names.blobs, mapping={b"digest": b"signed", b":digest": b"17"})
    await _upsert(bench, THREE)
    assert await bench.client.hget(bench.names.blobs, b":digest") is None
