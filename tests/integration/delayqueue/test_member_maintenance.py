"""Members of sets through sweep, collection of unused texts, and a move to other shards."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
import pytest

from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.members import values
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.sets import setrecord, setspec
from tests.support import queueing

BLOB = b'{"target":{"kind":"stream","name":"ticks"}}'
DAILY = rules.Rule(timing=rules.Timing(schedules=("0 9 * * *",)))
ONCE = rules.Rule(timing=rules.Timing(schedules=rules.ONCE))


@pytest.fixture
async def harness(redis_server, key_prefix):
    made = await queueing.redis_harness(redis_server.url, key_prefix, shards=2)
    yield made
    await made.close()


@pytest.fixture(params=[0, 2])
async def stored_set(harness, request):
    made = setrecord.SetRecord(
        namespace="shop",
        name="reminders",
        uid=str(uuid.uuid4()),
        generation=1,
        state=setrecord.SetState.READY,
        spread=request.param,
        target=harness.queue.signed_blobs.digest("shop", BLOB),
        settings=setspec.SetSettings(),
    )
    await harness.queue.sets.store(made, BLOB, queueing.EPOCH)
    writes = [
        values.MemberWrite(id=f"m{number}", rule=DAILY, payload=b"1" * (number % 2))
        for number in range(60)
    ]
    writes.append(values.MemberWrite(id="once", rule=ONCE, at_us=harness.now_us() + 3_600_000_000))
    await harness.queue.members.put(made, writes)
    return made


async def _everything(harness, set_):
    found, cursor = {}, ""
    while True:
        page = await harness.queue.members.pages.page(set_, cursor, limit=1_000)
        found |= {one.id: one for one in page.members}
        cursor = page.cursor
        if not cursor:
            return found


async def test_the_sweep_arms_a_member_that_lost_its_chain(harness, stored_set):
    before = (await _everything(harness, stored_set))["once"]
    member_id = points.member_id(stored_set.identity, "once")
    for shard in await harness.shards():
        for key in await harness.server.redis.keys(f"*{{g1.{shard}}}:points:*"):
            for member in await harness.server.redis.zrange(key, 0, -1):
                if member.startswith(member_id):
                    await harness.server.redis.zrem(key, member)
    assert await harness.rearm(due_of=lambda known: int(known.not_before_us + 7)) == 1
    after = (await _everything(harness, stored_set))["once"]
    assert after.due_us != before.due_us
    assert after.due_us is not None


@pytest.mark.parametrize("shards", [8, 1])
async def test_members_move_to_other_shards_with_all_they_have(harness, stored_set, shards):
    queue = harness.queue
    past = [values.MemberWrite(id="due", rule=ONCE, at_us=harness.now_us() - 1_000)]
    await queue.members.put(stored_set, past)
    (claim,) = await harness.claim_all()
    retry = queueing.a_retry(claim.points[0], due_us=harness.now_us() + 60_000_000, attempt=3)
    done = messages.Settlement(
        occurrences=(retry,),
        finished=(claim.points[0].member,),
        ended=(claim.points[0].member,),
    )
    await queue.settlements.settle(claim, done)
    before = await _everything(harness, stored_set)
    counted = await queue.sets.counts(stored_set)
    former = sharding.own_shards(await queue.layouts.read())
    await queue.resharding.announce(shards, queueing.EPOCH)
    for shard in former:
        async for moved in queue.mover.move_once(shard, queueing.EPOCH):
            assert moved.damaged == 0
        async with asyncio.timeout(60):
            while await queue.resharding.close(shard, queueing.EPOCH):
                await harness.outcomes()
    await queue.resharding.end(queueing.EPOCH)
    assert await _everything(harness, stored_set) == before
    # A shard to which none of the members came does not know the set until the leader counts.
    counts = await queue.sets.counts(stored_set)
    assert msgspec.structs.replace(counts, shards_without=0) == counted
    assert counted.members == 62
    waiting = [
        record.attempt
        for shard in sharding.own_shards(await queue.layouts.read())
        async for point, record in queue.occurrences.all_occurrences(shard)
        if point.kind is points.PointKind.RETRY
    ]
    assert waiting == [3]
    (answer,) = await queue.members.put(stored_set, [values.MemberWrite(id="m1", rule=DAILY)])
    assert answer.outcome is values.Outcome.REPLACED
