"""What nobody of us wrote into a shard does not keep it from being emptied, nor ends its mover."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.definitions import codec, interning
from duepoint.schedules import definition as definitions
from duepoint.schedules import points
from tests.integration.partitioning.scene import Scene
from tests.support import queueing

FAR_US = 4_000_000_000_000_000
BAND = points.DUE_LIMIT_US
A_CLAIM = b"A" * 12
SHARD = messages.ShardId(0)


@dataclasses.dataclass
class Damaged:
    """A shard of six schedules that are due in years, one of which is not as it should be."""

    scene: Scene
    queue: object
    client: object
    one: definitions.Definition

    @property
    def names(self):
        return self.scene.server.shard(SHARD)

    @property
    def bucket(self):
        return self.scene.server.bucket(SHARD, self.one.id)

    @property
    def chain(self):
        return self.one.id + self.one.timing_version

    @property
    def retry(self):
        return self.chain + bytes([points.PointKind.RETRY]) + (10**15).to_bytes(8, "big")

    async def record(self):
        return await self.client.hget(self.bucket, self.one.id)

    async def lane(self):
        return codec.numbers(await self.record())[0]

    async def score(self, member, score):
        await self.client.zadd(self.names.lane(await self.lane()), {member: score})

    async def write(self, record, field=None):
        await self.client.hset(self.bucket, field or self.one.id, record)

    async def lose(self, kind):
        numbers = codec.numbers(await self.record())
        place = {interning.TextKind.TARGET: 1, interning.TextKind.RULE: 2}[kind]
        await self.client.hdel(self.names.interned, f"n:{numbers[place]}")
        for servers in self.scene.servers.values():
            for report in servers.changes.on_upheaval:  # the servers are others now
                report()


async def another_format(it):
    await it.write(b"\x63" + (await it.record())[1:])


async def a_rule_that_is_lost(it):
    await it.lose(interning.TextKind.RULE)


async def a_target_that_is_lost(it):
    await it.lose(interning.TextKind.TARGET)


async def fields_that_are_no_ids(it):
    record = await it.record()
    for field in (b"x", b"y" * 30, b"z" * 8):
        await it.write(record, field)


async def a_chain_of_no_claim(it):
    await it.score(it.chain, BAND + 5)


async def a_chain_at_infinity(it):
    await it.score(it.chain, "+inf")


async def a_chain_before_all_time(it):
    await it.score(it.chain, "-inf")


async def a_retry_of_no_claim(it):
    await it.score(it.retry, BAND + 5)
    await it.client.zadd(it.names.occ, {it.retry: 0})


async def a_lease_of_a_wrong_clock(it):
    token = 3_900_000_000_000_000
    await it.score(it.chain, BAND + token)
    await it.client.zadd(it.names.claims, {A_CLAIM: token})
    points_ = [str(await it.lane()), [it.chain, "5"]]
    record = b"".join(msgspec.msgpack.encode(part) for part in (1, "w", points_))
    await it.client.hset(it.names.leases, A_CLAIM, record)


async def a_letter_that_is_no_text(it):
    await it.client.xadd(it.names.dead, {"uid": b"\xff\xfe", "namespace": b"\xff"})


async def workers_of_no_name_and_no_layout(it):
    await it.client.zadd(it.scene.server.keys.workers, {b"\xff": FAR_US})
    await it.client.hset(it.scene.server.keys.seen, mapping={b"\xff": 99, "gone": "abc"})


async def progress_that_is_none(it):
    strange = {"phase": "hovering", "moved": "many", "left": "", "waiting": b"\xff"}
    await it.client.hset(it.scene.server.keys.layout, mapping=strange)


DAMAGES = [
    another_format, a_rule_that_is_lost, a_target_that_is_lost, fields_that_are_no_ids,
    a_chain_of_no_claim, a_chain_at_infinity, a_chain_before_all_time, a_retry_of_no_claim,
    a_lease_of_a_wrong_clock, a_letter_that_is_no_text, workers_of_no_name_and_no_layout,
    progress_that_is_none,
]  # fmt: skip


@pytest.fixture
async def it(valkey, key_prefix):
    scene = Scene(valkey.url, key_prefix)
    queue = await scene.open(read=False)
    await queue.membership.open(1, queueing.EPOCH)
    for number in range(6):
        await scene.arm(queue, f"report-{number}", due_us=FAR_US)
    await scene.arm(queue, "report-0", generation=2, due_us=FAR_US)  # with a rule of its own
    one = next(one for one in scene.live.values() if one.name == "report-0")
    yield Damaged(scene, queue, scene.server.redis, one)
    await scene.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.replace("_", " "))
async def test_the_index_is_cut_anew_all_the_same(it, damage):
    await damage(it)
    mover, worker = await it.scene.open(), await it.scene.open()
    working = asyncio.create_task(it.scene.work(worker, "w"))
    try:
        await it.scene.partition(mover, 4)
    finally:
        working.cancel()
        (ended,) = await asyncio.gather(working, return_exceptions=True)
    assert isinstance(ended, asyncio.CancelledError)
    layout = await it.queue.layouts.read()
    held = {
        stored.id
        for shard in sharding.own_shards(layout)
        for stored in [one async for one in queueing.stored(it.queue, shard)]
        if stored.due_us == FAR_US
    }
    others = it.scene.live.keys() - {it.one.id}
    assert held >= others
    left = await it.client.keys(f"{it.scene.prefix}{{g1.*")
    assert [name for name in left if not name.endswith(b":meta")] == []


@pytest.mark.parametrize(
    "damage", [another_format, a_rule_that_is_lost, a_chain_of_no_claim], ids=lambda d: d.__name__
)
async def test_what_the_objects_have_to_mend_is_told(it, damage):
    await damage(it)
    mover = await it.scene.open()
    await mover.resharding.announce(4, queueing.EPOCH)
    assert await it.scene.one_pass(mover, SHARD) == 1
