"""The script that stores rows of a lane: each whole or not at all, and what keeps all from it."""

from __future__ import annotations

import uuid

import pytest

from duepoint.delayqueue.wire import scripting
from duepoint.schedules import definition
from tests.support import queueing
from tests.support.builders import a_record

DUE = "5000000"


def _definition(number, **changes):
    values = {
        **queueing.USUAL,
        "uid": str(uuid.UUID(int=number)),
        "name": f"s{number}",
        "target": "digest",
        "fingerprint": b"own!",
        **changes,
    }
    return definition.Definition(**values)


def _record(known):
    return a_record(known, namespace=1, target=1, rule=1)


async def _put(bench, known, *, expected="", due=DUE, numbers=None, **changes):
    """Definitions, all in one bucket and lane."""
    n = bench.names
    numbers = (await bench.intern("ntext"))[1:] if numbers is None else numbers
    call = scripting.ScriptCall("put", [
        n.meta, n.heads, n.wake, n.leases, n.interned, n.blobs, n.occ, n.occrec,
        n.ended_even, n.ended_odd, n.lane(bench.lane), n.bucket("n1", 0),
    ])  # fmt: skip
    first, last = call.run(
        value for one in known for value in (one.id, _record(one), due, expected)
    )
    part = {
        "keys": 1, "layout": 1, "lane": str(bench.lane), "numbers": numbers,
        "epoch": queueing.EPOCH, "groups": [12, first, last],
        "blobs": call.run([b"digest", b"signed"]), **changes,
    }  # fmt: skip
    call.put(parts=[part])
    (answered,) = await bench.run(call)
    return answered


async def _stored(bench):
    return await bench.client.hgetall(bench.names.bucket("n1", 0))


def _chain(known):
    return known.id + known.timing_version


THREE = [_definition(number) for number in (1, 2, 3)]


async def test_definitions_chains_blob_and_head_are_written_together(bench):
    assert await _put(bench, THREE) == [b"+"] * 3
    assert await _stored(bench) == {one.id: _record(one) for one in THREE}
    assert await bench.scores() == {_chain(one): 5_000_000 for one in THREE}
    assert await bench.client.hget(bench.names.blobs, b"digest") == b"signed"
    assert await bench.head() == 5_000_000


async def test_a_row_that_meets_something_else_says_what_and_its_neighbours_are_written(bench):
    first, second, third = THREE
    await _put(bench, [first, second])
    edited = [
        _definition(number, generation=2, timing_generation=2, fingerprint=b"new!")
        for number in (1, 2, 3)
    ]
    answers = await _put(bench, edited, due="7000000")
    assert answers == [_record(first), _record(second), b"+"]
    answers = await _put(bench, [edited[0], _definition(4)], expected=b"own!", due="7000000")
    assert answers == [b"=", b""]
    stored = {
        first.id: _record(edited[0]),
        second.id: _record(second),
        third.id: _record(edited[2]),
    }
    assert await _stored(bench) == stored
    assert await bench.scores() == {
        _chain(edited[0]): 7_000_000,
        _chain(second): 5_000_000,
        _chain(edited[2]): 7_000_000,
    }


async def test_a_record_that_cannot_be_read_is_made_anew_where_anything_is_expected(bench):
    for garbage in (b"of somebody else", b"x"):
        await bench.client.hset(bench.names.bucket("n1", 0), THREE[0].id, garbage)
        assert await _put(bench, THREE[:1]) == [garbage]
        assert await _put(bench, THREE[:1], expected="*") == [b"="]
        assert await _stored(bench) == {THREE[0].id: _record(THREE[0])}


async def test_a_shard_that_is_being_emptied_takes_nothing_new(bench):
    await bench.client.hset(bench.names.meta, "state", "draining")
    assert await _put(bench, THREE) == [b"-"] * 3
    assert await bench.scores() == {}


async def test_a_row_on_its_way_to_another_shard_keeps_all_from_being_written(bench):
    await bench.client.hset(bench.names.meta, "state", "draining")
    await bench.client.hset(bench.names.leases, b"i" + THREE[2].id, b"a batch")
    assert await _put(bench, THREE) == [b"BUSY"]
    assert await _stored(bench) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"numbers": [77]}, b"WRONGLAYOUT"),
        ({"incarnation": "another life"}, b"WRONGLAYOUT"),
        ({"epoch": queueing.EPOCH - 1}, b"FENCED"),
    ],
    ids=["a number that stands for nothing", "made anew", "an older term"],
)
async def test_what_keeps_all_from_being_written(bench, changes, said):
    await bench.client.hset(bench.names.meta, "epoch", queueing.EPOCH)
    assert (await _put(bench, THREE, **changes)).startswith(said)
    assert await _stored(bench) == {}


async def test_a_blob_that_was_marked_as_unused_is_used_again(bench):
    await bench.client.hset(bench.names.blobs, mapping={b"digest": b"signed", b":digest": b"17"})
    await _put(bench, THREE)
    assert await bench.client.hget(bench.names.blobs, b":digest") is None
