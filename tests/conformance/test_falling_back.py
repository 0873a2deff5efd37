"""A server that fell back: Schedules that were due before then wait, the others do not."""

from __future__ import annotations

import dataclasses

import pytest

from duepoint import clock as clocks
from duepoint.delayqueue import messages, sharding
from duepoint.schedules import points
from tests.support import queueing
from tests.support.queueing import EPOCH, SECOND_US, a_retry, moved

SHARD = messages.ShardId(0)
HOUR_US = 3_600 * SECOND_US


@pytest.fixture
def queue_options():
    return {"shards": 1}


async def change_server(harness, other="another"):
    """Make the state come from another process of the server."""
    meta = harness.server.shard(SHARD).meta
    await harness.server.redis.hset(meta, "server", other)


async def a_look(harness):
    """Claim something, which detects another server."""
    await harness.arm(name="looked-at")
    claim = await harness.claim_one()
    await harness.queue.settlements.settle(
        claim, messages.Settlement(finished=(claim.points[0].member,))
    )
    await harness.queue.writer.remove(
        claim.points[0].schedule_id, harness.definition(name="looked-at").uid, "default", EPOCH
    )


async def doubts(harness):
    return await harness.queue.fallbacks.doubts()


async def overdue(harness):
    (doubt,) = await doubts(harness)
    found = harness.queue.fallbacks.overdue(doubt)
    return [one async for one in found]


async def end(harness):
    """End the doubt, as the leader does once it has compared everything overdue."""
    (doubt,) = await doubts(harness)
    return await harness.queue.fallbacks.end(doubt, EPOCH)


async def chain_due_us(harness):
    (found,) = [one async for one in queueing.stored(harness.queue, SHARD)]
    return found.due_us


async def arm_with(harness, kind, *, due_us, chain_in=3_600):
    """Arm a Schedule whose chain is due later, beside an occurrence."""
    await harness.arm()
    claim = await harness.claim_one()
    retry = a_retry(claim.points[0], due_us=due_us)
    stored = dataclasses.replace(retry, point=dataclasses.replace(retry.point, kind=kind))
    chains = (moved(claim.points[0], chain_in),)
    settlement = messages.Settlement(chains=chains, occurrences=(stored,))
    await harness.queue.settlements.settle(claim, settlement)
    return stored


async def test_a_claim_finds_out_that_the_server_is_another_one(harness):
    await a_look(harness)
    await change_server(harness)
    began = harness.now_us()
    await harness.arm()
    assert await harness.claim_all() == []
    ledger = harness.queue.ledger()
    (note,) = await ledger.read_outcomes(shards=[SHARD])
    # Less the time for which the connection has known the server, which is some seconds.
    assert began - 5 * SECOND_US <= note.back_us <= harness.now_us() + SECOND_US
    (doubt,) = await doubts(harness)
    assert (doubt.shard, doubt.back_us) == (SHARD, note.back_us)
    await ledger.store(SHARD, {}, through=note.id, epoch=EPOCH)
    assert await ledger.read_outcomes(shards=[SHARD]) == []  # it is found once


async def test_the_leader_finds_out_before_any_claim_that_the_server_is_another_one(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm(due_in=-10.0)  # before this process met the server, however slow that was
    began = harness.now_us()
    (doubt,) = await harness.queue.fallbacks.doubts(every=True)
    assert began - 5 * SECOND_US <= doubt.back_us <= harness.now_us() + SECOND_US
    assert await harness.claim_all() == []


async def test_what_was_due_before_waits_with_all_that_its_schedule_has(harness):
    await arm_with(harness, points.PointKind.RETRY, due_us=harness.now_us() - 1)
    await change_server(harness)
    assert await harness.claim_all() == []
    assert await overdue(harness) == [harness.definition()]  # its chain is due later


async def test_an_old_claim_that_runs_out_is_handed_to_nobody(harness):
    await harness.arm()
    claim = await harness.claim_one(lease_seconds=60.0)
    await change_server(harness)
    assert await harness.claim_all() == []
    assert await overdue(harness) == []  # a claim holds it
    await harness.queue.claims.release(claim)  # which has ended then
    assert await harness.claim_all() == []
    assert await overdue(harness) == [harness.definition()]


async def test_what_has_not_run_is_handed_out_as_it_was_once_the_doubt_has_ended(harness):
    retry = await arm_with(
        harness, points.PointKind.RETRY, due_us=harness.now_us() - 2, chain_in=0.5
    )
    await change_server(harness)
    await harness.pass_time(0.6)
    assert await harness.claim_all() == []
    (one,) = await overdue(harness)
    due_us = await chain_due_us(harness)
    assert await end(harness)
    claims = await harness.claim_all()
    chain = one.id + one.timing_version
    assert queueing.members(claims) == sorted([retry.point.member, chain])
    dues = {point.member: point.due_us for claim in claims for point in claim.points}
    assert dues == {retry.point.member: retry.point.due_us, chain: due_us}


async def test_a_slot_that_came_after_the_doubt_does_not_wait(harness):
    await a_look(harness)
    await change_server(harness)
    assert await harness.claim_all() == []
    await harness.pass_time(0.01)
    due_us = harness.now_us()
    await harness.arm(due_us=due_us)
    claim = await harness.claim_one()
    waiting = a_retry(claim.points[0], due_us=due_us)
    point = dataclasses.replace(waiting.point, kind=points.PointKind.QUEUED)
    settlement = messages.Settlement(
        chains=(moved(claim.points[0], 3_600),),
        occurrences=(dataclasses.replace(waiting, point=point),),
    )
    await harness.queue.settlements.settle(claim, settlement)
    assert queueing.members(await harness.claim_all()) == [point.member]


async def test_a_shard_that_was_made_anew_is_in_no_doubt(harness):
    await harness.arm()
    await harness.claim_one()
    names = harness.server.shard(SHARD)
    (lane,) = await harness.queue.definitions.lanes(SHARD)
    gone = (names.meta, names.heads, names.claims, names.leases, names.lane(lane))
    await harness.server.redis.unlink(*gone)
    await harness.pass_time(0.001)
    await harness.queue.membership.open(1, EPOCH)
    await harness.queue.layouts.read()
    await harness.arm(name="other")
    assert await harness.claim_one()
    assert await doubts(harness) == ()


# -- from when on nothing is in doubt ----------------------------------------------------------


@pytest.fixture
async def newcomer(harness, server, key_prefix):
    """Yield another client, which has just met the server with the state of another process."""
    await a_look(harness)
    await change_server(harness)
    made = await queueing.redis_harness(server.url, key_prefix, shards=1)
    yield made
    await made.close()


async def test_what_became_due_since_the_server_answered_does_not_wait(newcomer):
    met_us = newcomer.now_us()
    await newcomer.pass_time(0.3)
    await newcomer.arm(due_in=-0.1)
    assert await newcomer.claim_one()
    (doubt,) = await doubts(newcomer)
    assert 0 < doubt.back_us <= met_us + 50_000


# -- clocks that are wrong -----------------------------------------------------------------------


class WrongClock(clocks.SystemClock):
    """The caller's clock; ``off_us`` is how far it is ahead of the server's."""

    off_us = 0

    def now_us(self) -> int:
        return super().now_us() + self.off_us


@pytest.fixture
async def wrong(harness, server, key_prefix):
    """Yield a client that has just met a server with another process's state, and its clock."""
    await a_look(harness)
    await change_server(harness)
    wrong = WrongClock()
    made = await queueing.redis_harness(server.url, key_prefix, shards=1, clock=wrong)
    yield made, wrong
    await made.close()


async def an_answer(harness):
    (answer,) = await harness.queue.claims.claim([SHARD], worker="w")
    return answer


async def stored_back(harness):
    """Return the time to which the shard fell back, if known."""
    back = await harness.server.redis.hget(harness.server.shard(SHARD).meta, "back")
    return None if back is None else int(back)


@pytest.mark.parametrize(
    "off_us", [-HOUR_US, 3 * SECOND_US, HOUR_US], ids=["server ahead", "3 s behind", "behind"]
)
async def test_what_is_due_by_either_clock_is_held_up_where_they_differ(wrong, off_us):
    """The slot may have run if that clock is the right one."""
    harness, clock = wrong
    clock.off_us = off_us
    latest_us = max(clock.now_us(), clock.now_us() - off_us)
    await harness.arm(due_us=min(clock.now_us(), clock.now_us() - off_us) - SECOND_US)
    await harness.arm(name="other", due_us=latest_us - 2 * SECOND_US)
    assert (await an_answer(harness)).claim is None
    assert latest_us - 5 * SECOND_US <= await stored_back(harness) <= latest_us + 60 * SECOND_US
    names = {one.name for one in await overdue(harness)}
    assert names == {"report", "other"}


async def pass_of_moving(harness, former):
    """Run a pass of moving, and return how many Schedules the former shard has kept."""
    return sum([step.left_out async for step in harness.queue.mover.move_once(former, EPOCH)])


async def test_what_waits_moves_to_no_other_shard_before_it_was_put_again(harness):
    await arm_with(harness, points.PointKind.RETRY, due_us=harness.now_us() - 1)
    await change_server(harness)
    assert await harness.claim_all() == []
    layout = await harness.queue.resharding.announce(2, EPOCH)
    (former,) = set(sharding.all_shards(layout)) - set(sharding.own_shards(layout))

    assert await pass_of_moving(harness, former) > 0
    (one,) = await overdue(harness)
    assert await harness.claim_all() == []

    await harness.queue.writer.remove(one.id, one.uid, one.namespace, EPOCH)
    assert await end(harness)
    assert await pass_of_moving(harness, former) == 0
