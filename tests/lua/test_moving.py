"""The scripts by which a schedule goes to another shard, each alone and with a second client.

Shard 0 is drained, shard 1 filled; what is exported from the one is imported into the other, with
its number of the namespace as it stands (the texts are interned by the caller elsewhere).
"""

from __future__ import annotations

import asyncio
import dataclasses
import os

import msgspec
import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.schedules import definition, points
from duepoint.schedules import rule as rules
from tests.support import queueing

FROM, TO = messages.ShardId(0), messages.ShardId(1)


@dataclasses.dataclass
class Move:
    """Both shards, and the scripts with their usual arguments."""

    harness: queueing.Harness
    schedules: list[definition.Definition]

    def names(self, shard):
        return self.harness.server.shard(shard)

    @property
    def client(self):
        return self.harness.server.redis

    async def run(self, call):
        return await self.harness.server.run(call)

    def call(self, name, shard=FROM, epoch=queueing.EPOCH, **named):
        return self.harness.queue.index.call(name, shard, epoch=epoch, **named)

    async def drain(self, *, hold=0, epoch=queueing.EPOCH):
        return await self.run(self.call("drain", epoch=epoch, hold=hold))

    async def export(self, *schedules, batch=None, most=100, epoch=queueing.EPOCH):
        n = self.names(FROM)
        named = {"most": most, "latest": 60_000_000, "followers": []}
        call = self.call("export", epoch=epoch, batch=batch or os.urandom(16), **named)
        groups = []
        for one in schedules:
            lane = await self.lane(one)
            lane_key, bucket = call.key(n.lane(lane)), call.key(self.bucket(FROM, one))
            groups.append((str(lane), lane_key, bucket, *call.run([one.id])))
        call.put(schedules=groups)
        left_out, taken, _ = await self.run(call)
        return left_out, taken

    async def import_(self, taken, batch):
        n = self.names(TO)
        incarnation = await self.client.hget(n.meta, "incarnation")
        call = self.call("import", TO, incarnation=incarnation.decode(), batch=batch)
        known = {one.id: one for one in self.schedules}
        call.put(
            blobs=call.run([]),
            schedules=[
                (
                    lane.decode(),
                    call.key(n.lane(int(lane))),
                    call.key(self.bucket(TO, known[schedule])),
                    call.position(schedule),
                    call.position(record) if record else 0,
                    int(due) if due else False,
                    *call.run(triples),
                )
                for lane, _, schedule, record, due, triples in taken
            ],
        )
        return await self.run(call)

    async def forget(self, taken, batch):
        known = {one.id: one for one in self.schedules}
        call = self.call("forget", batch=batch)
        call.put(
            schedules=[
                (call.position(one[2]), call.key(self.bucket(FROM, known[one[2]]))) for one in taken
            ]
        )
        return await self.run(call)

    async def moves(self):
        return await self.run(self.call("moves", most=10))

    async def close(self):
        return await self.run(self.call("close"))

    # -- what is where ---------------------------------------------------------------------------

    def bucket(self, shard, one):
        return self.names(shard).bucket_of(one.id, self.harness.server.buckets)

    async def lane(self, one):
        numbers = await self.harness.queue.definitions.namespaces(FROM)
        return next(n for n, name in numbers.items() if name == one.namespace)

    async def chain(self, shard, one):
        key = self.names(shard).lane(await self.lane(one))
        return await self.client.zscore(key, one.id + one.timing_version)

    async def has_definition(self, shard, one):
        return bool(await self.client.hexists(self.bucket(shard, one), one.id))


@pytest.fixture
async def move(redis_server, key_prefix):
    """Three schedules in the shard that is drained, all due."""
    harness = await queueing.redis_harness(redis_server.url, key_prefix, shards=2)
    made = []
    for number in range(100):
        one = harness.definition(name=f"s{number}")
        if one.id[-1] % 2 == FROM and len(made) < 3:
            await harness.arm(name=one.name, due_in=-5.0)
            made.append(one)
    ready = Move(harness, made)
    await ready.client.hset(ready.names(TO).meta, "state", "filling")
    yield ready
    await harness.close()


async def test_what_is_exported_waits_for_its_new_shard_and_is_readable_meanwhile(move):
    await move.drain()
    one = move.schedules[0]
    due = await move.chain(FROM, one)
    batch = os.urandom(16)
    left_out, taken = await move.export(one, batch=batch)
    assert (left_out, len(taken)) == (0, 1)
    assert await move.chain(FROM, one) is None
    assert await move.has_definition(FROM, one)
    assert [name for name, _ in await move.moves()] == [batch]

    assert await move.import_(taken, batch) == [1, 0]
    assert await move.chain(TO, one) == due
    assert await move.forget(taken, batch) == 1
    assert not await move.has_definition(FROM, one)
    assert await move.moves() == []


@pytest.mark.parametrize("step", ["import", "forget"])
async def test_a_step_done_twice_changes_nothing(move, step):
    await move.drain()
    one = move.schedules[0]
    batch = os.urandom(16)
    _, taken = await move.export(one, batch=batch)
    await move.import_(taken, batch)
    if step == "import":
        key = move.names(TO).lane(await move.lane(one))
        await move.client.zrem(key, one.id + one.timing_version)  # claimed and ended meanwhile
        assert await move.import_(taken, batch) == [0, 0]
        assert await move.chain(TO, one) is None
    else:
        assert await move.forget(taken, batch) == 1
        assert await move.forget(taken, batch) == 0


async def test_two_exports_at_once_take_each_schedule_once(move):
    await move.drain()
    answers = await asyncio.gather(*(move.export(*move.schedules) for _ in range(2)))
    taken = [schedule[2] for _, some in answers for schedule in some]
    assert sorted(taken) == sorted(one.id for one in move.schedules)
    assert sum(left_out for left_out, _ in answers) == len(move.schedules)


async def test_two_imports_at_once_bring_a_batch_once(move):
    await move.drain()
    batch = os.urandom(16)
    _, taken = await move.export(*move.schedules, batch=batch)
    answers = await asyncio.gather(*(move.import_(taken, batch) for _ in range(2)))
    assert sorted(answers) == [[0, 0], [len(move.schedules), 0]]


async def test_a_claimed_chain_is_left_out_and_nothing_is_noted(move):
    await move.harness.queue.claims.claim((FROM,), worker="w", batch=10, lease_seconds=30.0)
    await move.drain()
    assert await move.export(*move.schedules) == (len(move.schedules), [])
    assert await move.moves() == []


@pytest.mark.parametrize("held", [True, False], ids=["the last is held", "none is held"])
async def test_a_counted_schedule_with_thousands_of_slots_that_wait_can_leave(move, held):
    """As many as ``queueLimit`` allows are more than one command can be asked about."""
    limited = rules.Rule(timing=rules.Timing(schedules=("@every 1m",), max_runs=20_000))
    one = msgspec.structs.replace(move.schedules[0], generation=2, rule=limited)
    arming = messages.Arming(definition=one, due_us=None, keep_chain=True)
    await move.harness.queue.writer.upsert([(arming, queueing.BLOB)], queueing.EPOCH)
    head = one.id + one.timing_version + bytes([points.PointKind.QUEUED])
    waiting = [head + slot.to_bytes(8, "big") for slot in range(9_000)]
    names, far_us = move.names(FROM), points.DUE_LIMIT_US - 1
    lane_key = names.lane(await move.lane(one))
    for first in range(0, len(waiting), 3_000):
        some = waiting[first : first + 3_000]
        await move.client.zadd(lane_key, dict.fromkeys(some, far_us))
        await move.client.zadd(names.occ, dict.fromkeys(some, 0))
    if held:
        await move.client.zadd(lane_key, {waiting[-1]: move.harness.now_us()})
        claims = await move.harness.claim_all()
        await move.harness.queue.claims.release(claims[0], [one.id + one.timing_version])
    await move.drain()
    left_out, taken = await move.export(one)
    assert (left_out, len(taken)) == ((1, 0) if held else (0, 1))


async def test_of_counted_schedules_with_ten_thousand_slots_few_are_looked_at(move):
    """Each was looked at slot by slot: 8 ms of the server for one, 200 times that for a batch."""
    limited = rules.Rule(timing=rules.Timing(schedules=("@every 1m",), max_runs=20_000))
    names = move.names(FROM)
    for one in move.schedules:
        counted = msgspec.structs.replace(one, generation=2, rule=limited)
        arming = messages.Arming(definition=counted, due_us=None, keep_chain=True)
        await move.harness.queue.writer.upsert([(arming, queueing.BLOB)], queueing.EPOCH)
        head = one.id + one.timing_version + bytes([points.PointKind.QUEUED])
        waiting = [head + slot.to_bytes(8, "big") for slot in range(10_000)]
        lane_key = names.lane(await move.lane(one))
        for first in range(0, len(waiting), 2_000):
            some = waiting[first : first + 2_000]
            await move.client.zadd(lane_key, dict.fromkeys(some, points.DUE_LIMIT_US - 1))
            await move.client.zadd(names.occ, dict.fromkeys(some, 0))
    await move.drain()
    before = await _looked_up(move.client)
    left_out, taken = await move.export(*move.schedules, most=500)
    assert (left_out, len(taken)) == (0, len(move.schedules))
    assert sum(len(one[5]) // 3 for one in taken) == 500
    # the chain of each, and once what fits of their slots; it was ten times more for each
    assert await _looked_up(move.client) - before == len(move.schedules) + 1


async def _looked_up(client) -> int:
    """How often scores of many members were read."""
    return (await client.info("commandstats"))["cmdstat_zmscore"]["calls"]


async def test_nobody_claims_what_is_on_its_way(move):
    await move.drain()
    await move.export(*move.schedules)
    (answer,) = await move.harness.queue.claims.claim(
        (FROM,), worker="w", batch=10, lease_seconds=30.0
    )
    assert answer.claim is None


async def test_a_newer_generation_that_is_there_already_stays(move):
    await move.drain()
    one = move.schedules[0]
    batch = os.urandom(16)
    _, taken = await move.export(one, batch=batch)
    await move.import_(taken, batch)
    before = await move.client.hget(move.bucket(TO, one), one.id)
    (entry,) = taken
    older = [*entry[:4], b"1", entry[5]]
    assert await move.import_([older], os.urandom(16)) == [0, 0]
    assert await move.client.hget(move.bucket(TO, one), one.id) == before
    assert await move.chain(TO, one) != 1


async def test_a_shard_that_is_open_gives_nothing_away_and_takes_nothing_in(move):
    with pytest.raises(queue_errors.LayoutChanged, match="gives nothing away"):
        await move.export(*move.schedules)
    await move.drain()
    batch = os.urandom(16)
    _, taken = await move.export(*move.schedules, batch=batch)
    await move.client.hset(move.names(TO).meta, "state", "open")
    with pytest.raises(queue_errors.LayoutChanged, match="takes nothing in"):
        await move.import_(taken, batch)
    assert [name for name, _ in await move.moves()] == [batch]


async def test_an_older_leader_drains_and_exports_nothing(move):
    await move.drain()
    for step in (move.drain(epoch=queueing.EPOCH - 1), move.export(epoch=queueing.EPOCH - 1)):
        with pytest.raises(queue_errors.Fenced):
            await step


async def test_a_shard_is_closed_once_nothing_is_on_its_way_and_nothing_unread(move):
    with pytest.raises(queue_errors.LayoutChanged, match="cannot be closed"):
        await move.close()
    await move.drain()
    batch = os.urandom(16)
    _, taken = await move.export(*move.schedules, batch=batch)
    assert await move.close() == b"moving"
    await move.import_(taken, batch)
    await move.forget(taken, batch)
    entry = await move.client.xadd(move.names(FROM).runs, {"o": b"x"})
    assert await move.close() == b"outcomes"
    await move.client.xdel(move.names(FROM).runs, entry)
    letter = await move.client.xadd(move.names(FROM).dead, {"member": b"x"})
    assert await move.close() == b"dead"
    await move.client.xdel(move.names(FROM).dead, letter)
    assert await move.close() == b"closed"
    with pytest.raises(queue_errors.LayoutChanged):
        await move.export(*move.schedules)


async def test_a_hold_from_before_the_server_clock_was_put_back_stops_nobody(move):
    await move.drain(hold=3_600_000_000)
    (answer,) = await move.harness.queue.claims.claim(
        (FROM,), worker="w", batch=10, lease_seconds=30.0
    )
    assert answer.claim is not None


async def test_a_hold_keeps_points_where_they_are_for_so_long(move):
    await move.drain(hold=60_000_000)
    (answer,) = await move.harness.queue.claims.claim(
        (FROM,), worker="w", batch=10, lease_seconds=30.0
    )
    assert answer.claim is None
    await move.drain(hold=0)
    (answer,) = await move.harness.queue.claims.claim(
        (FROM,), worker="w", batch=10, lease_seconds=30.0
    )
    assert answer.claim is not None
    assert len(answer.claim.points) == len(move.schedules)
