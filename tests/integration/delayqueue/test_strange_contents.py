"""What nobody of us wrote into the index holds up nobody else."""

from __future__ import annotations

import msgspec
import pytest
from prometheus_client import REGISTRY

from duepoint import errors
from duepoint.delayqueue import sharding
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


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
async def test_a_claim_whose_record_says_nonsense_holds_up_nobody(harness, record):
    await harness.arm()
    known, _, names = place(harness)
    await harness.server.redis.zadd(names.claims, {A_CLAIM: 1})
    await harness.server.redis.hset(names.leases, A_CLAIM, record)
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
    with pytest.raises(errors.QueueUnavailable, match="layout cannot be read"):
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
