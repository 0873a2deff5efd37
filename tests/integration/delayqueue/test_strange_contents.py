"""What nobody of us wrote into the index holds up nobody else."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import REGISTRY

from duepoint import errors
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import interning
from tests.support import queueing

A_CLAIM = b"A" * 12


def packed(*values):
    return b"".join(msgspec.msgpack.encode(value) for value in values)


RECORDS = {
    "points that are none": packed(1, "w", ["0", 5]),
    "a lane that is none": packed(1, "w", ["abc", ["m", "5"]]),
    "a lane that is a number": packed(1, "w", [7, ["m", "5"]]),
    "a lane that is a list": packed(1, "w", [[1], ["m", "5"]]),
    "a due that is none": packed(1, "w", ["0", ["m", "soon"]]),
    "a member without a due": packed(1, "w", ["0", ["m"]]),
    "nothing for a member": packed(1, "w", ["0", [None, "5"]]),
}


def unreadable(kind):
    return REGISTRY.get_sample_value("duepoint_unreadable_total", {"kind": kind}) or 0.0


def place(harness, name="report", namespace="default"):
    """Where a schedule is: its definition, shard, and the shard's names."""
    known = harness.definition(name=name, namespace=namespace)
    shard = sharding.shard_of(known.id, 4)
    return known, shard, harness.server.shard(shard)


async def claimed(harness):
    """Whose points can be claimed."""
    return [point.schedule_id for claim in await harness.claim_all() for point in claim.points]


@pytest.mark.parametrize("head", [b"abc", b"\xff\x00", b"-5", b"1.5"])
async def test_a_head_that_is_no_lane_is_removed(harness, head):
    await harness.arm()
    known, _, names = place(harness)
    await harness.server.redis.zadd(names.heads, {head: 1})
    assert await claimed(harness) == [known.id]
    assert await harness.server.redis.zscore(names.heads, head) is None


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
async def test_a_claim_whose_record_says_nonsense_holds_up_nobody(harness, record):
    await harness.arm()
    known, _, names = place(harness)
    await harness.server.redis.zadd(names.claims, {A_CLAIM: 1})
    await harness.server.redis.hset(names.leases, A_CLAIM, record)
    assert [lease async for lease in harness.queue.held_claims.all()] == []
    assert await claimed(harness) == [known.id]
    assert await harness.server.redis.zscore(names.claims, A_CLAIM) is None


async def test_a_shard_with_a_key_of_another_type_holds_up_no_other(harness):
    await harness.arm(name="report")
    known, shard, _ = place(harness)
    others = {place(harness, f"other-{n}")[1]: f"other-{n}" for n in range(40)}
    broken = next(one for one in others if one != shard)
    names = harness.server.shard(broken)
    await harness.server.redis.delete(names.heads)
    await harness.server.redis.set(names.heads, "no set")
    before = unreadable("shard")
    assert await claimed(harness) == [known.id]
    (answer,) = await harness.queue.claims.claim([broken], worker="w1")
    assert answer.claim is None
    assert answer.wait_seconds == 1.0
    assert unreadable("shard") >= before + 1


async def test_a_worker_whose_name_is_no_text_is_one_of_several(harness):
    await harness.server.redis.zadd(harness.server.keys.workers, {b"\xff\xfe": 9e18})
    assert "w1" in (await harness.queue.membership.beat("w1")).workers


async def test_a_layout_that_is_no_number_is_none_to_a_worker(harness):
    await harness.server.redis.hset(harness.server.keys.layout, "shards", "abc")
    assert (await harness.queue.membership.beat("w1")).layout is None


@pytest.mark.parametrize(
    "said",
    [
        {"shards": "abc"}, {"shards": "99999999999"}, {"shards": "3"}, {"shards": "-4"},
        {"layout": "0"}, {"layout": "9" * 30}, {"buckets": "0"}, {"buckets": "9" * 12},
        {"former": "1", "former_shards": "9" * 12},
    ],
    ids=str,
)  # fmt: skip
async def test_a_layout_that_cannot_be_is_said_in_one_line(harness, said):
    await harness.server.redis.hset(harness.server.keys.layout, mapping=said)
    with pytest.raises(errors.QueueUnavailable, match="layout says cannot be read"):
        await harness.queue.layouts.read()


@pytest.mark.parametrize(
    "damage", [{"layout": "abc"}, {"incarnation": None}, {"layout": None}], ids=str
)
async def test_a_shard_that_does_not_say_what_it_is_is_made_anew_with_what_it_holds(
    harness, damage
):
    await harness.arm()
    known, shard, names = place(harness)
    for field, value in damage.items():
        if value is None:
            await harness.server.redis.hdel(names.meta, field)
        else:
            await harness.server.redis.hset(names.meta, field, value)
    with pytest.raises(errors.QueueUnavailable):
        await harness.queue.claims.claim([shard], worker="w1")
    with pytest.raises(errors.QueueUnavailable):
        await harness.queue.definitions.read_definitions(shard, [known.id])
    await harness.queue.membership.open(4, queueing.EPOCH)
    assert await claimed(harness) == [known.id]
    assert (await harness.queue.definitions.definition(known.id)).name == "report"


async def test_a_term_that_is_no_number_is_an_old_one(harness):
    _, _, names = place(harness)
    await harness.server.redis.hset(names.meta, "epoch", "abc")
    assert await harness.arm() is messages.Armed.APPLIED


LOST = {
    "gone": None,
    "no text": b"\xff\xfe",
}


OF_A_SCHEDULE = [kind for kind in interning.TextKind if kind is not interning.TextKind.SET]


@pytest.mark.parametrize("text", LOST.values(), ids=LOST.keys())
@pytest.mark.parametrize("kind", OF_A_SCHEDULE, ids=str)
async def test_a_definition_whose_text_is_lost_holds_up_no_neighbour(harness, kind, text):
    neighbour, shard = await with_a_neighbour(harness)
    broken = place(harness)[0]
    await damage_text(harness, kind, text)
    found = await a_fresh_reading(harness, shard, [broken.id, neighbour.id])
    assert set(found) == {neighbour.id}
    assert found.unreadable == {broken.id}


@pytest.mark.parametrize("kind", OF_A_SCHEDULE, ids=str)
async def test_a_number_whose_text_is_gone_gets_it_back(harness, kind):
    _, shard = await with_a_neighbour(harness)
    broken = place(harness)[0]
    await damage_text(harness, kind, None)
    harness.meet_another_server()
    assert await harness.arm() is messages.Armed.UNCHANGED
    assert set(await a_fresh_reading(harness, shard, [broken.id])) == {broken.id}


async def test_a_number_that_stands_for_something_else_is_left_to_that(harness):
    _, shard = await with_a_neighbour(harness)
    await damage_text(harness, interning.TextKind.RULE, b"\xff\xfe")
    harness.meet_another_server()
    assert await harness.arm(generation=2) is messages.Armed.APPLIED
    broken = place(harness)[0]
    assert set(await a_fresh_reading(harness, shard, [broken.id])) == {broken.id}


async def test_fields_of_a_bucket_that_are_no_ids_do_not_end_the_sweep(harness):
    await harness.arm()
    known, _, names = place(harness)
    bucket = names.bucket_of(known.id, harness.server.buckets)
    record = await harness.server.redis.hget(bucket, known.id)
    await harness.server.redis.hset(bucket, mapping={b"x": b"", b"y" * 30: record})
    assert await harness.rearm(5) == 0


async def with_a_neighbour(harness):
    """Another schedule of the shard of ``report``, with texts of its own; both are armed."""
    await harness.arm()
    _, shard, _ = place(harness)
    for n in range(200):
        named = {"name": f"n-{n}", "namespace": f"elsewhere-{n}"}
        if place(harness, **named)[1] == shard:
            rule = msgspec.structs.replace(queueing.USUAL["rule"], policy=OTHER_POLICY)
            await harness.arm(rule=rule, **named)
            return harness.definition(**named), shard
    raise AssertionError("no name leads to this shard")


OTHER_POLICY = msgspec.structs.replace(queueing.USUAL["rule"].policy, catch_up="All")


async def damage_text(harness, kind, text):
    """What the definition of ``report`` names under this kind, and its neighbour does not."""
    known, _, names = place(harness)
    wanted = {
        interning.TextKind.NAMESPACE: known.namespace,
        interning.TextKind.TARGET: known.target,
        interning.TextKind.RULE: "",
    }[kind]
    numbered = await harness.server.redis.hgetall(names.interned)
    (field,) = [
        name
        for name, value in numbered.items()
        if name.startswith(b"n:")
        and value.startswith(kind.encode())
        and (value[1:] == wanted.encode() or (not wanted and b"All" not in value))
    ]
    if text is None:
        await harness.server.redis.hdel(names.interned, field)
    else:
        await harness.server.redis.hset(names.interned, field, kind.encode() + text)


async def a_fresh_reading(harness, shard, ids):
    """As by a process that knows no text yet."""
    harness.meet_another_server()
    return await harness.queue.definitions.read_definitions(shard, ids)
