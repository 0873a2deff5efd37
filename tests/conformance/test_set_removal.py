"""Removal of a deleted set from the queue: in bounded steps, and nothing but the set."""

from __future__ import annotations

import uuid

import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.members.values import Outcome
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from duepoint.schedules.sets.setrecord import SetState
from tests.conformance.test_members import BLOB, a_set, a_write
from tests.support import queueing

EPOCH = queueing.EPOCH
SOON = rules.Rule(timing=rules.Timing(schedules=("@every 1s",)))


async def filled(harness, count, **changes):
    made = a_set(harness.queue, **changes)
    await harness.queue.sets.store(made, BLOB, EPOCH)
    rows = [a_write(f"m{number}", rule=SOON) for number in range(count)]
    answers = await harness.queue.members.put(made, rows)
    assert {answer.outcome for answer in answers} == {Outcome.CREATED}
    return made


async def removed(harness, record, *, most=2_000, steps=1_000):
    """Run every step until nothing is left."""
    found = []
    for _ in range(steps):
        found.append(await harness.queue.set_removals.step(record, EPOCH, most=most))
        if found[-1].is_done:
            return found
    raise AssertionError("the removal does not end")


async def keys_left(harness):
    """Return what is left of sets in the index: fields of meta, lanes, buckets."""
    server = harness.server
    left = []
    for shard in await harness.shards():
        names = harness.queue.index.shard(shard)
        fields = await server.redis.hkeys(names.meta)
        left += [field for field in fields if field[:1] in (b"s", b"c") and field[1:].isdigit()]
    return left


@pytest.mark.parametrize("spread", [0, 3])
async def test_every_member_goes_with_its_points_and_the_set_last(harness, spread):
    made = await filled(harness, 1_500, spread=spread)
    steps = await removed(harness, made, most=200)
    assert sum(step.removed for step in steps) == 1_500
    assert max(step.removed for step in steps) < 200 + 600
    lefts = [step.left for step in steps]
    assert lefts == sorted(lefts, reverse=True)
    assert steps[-1].left == 0
    assert await harness.queue.sets.all() == []
    assert await keys_left(harness) == []
    counts = await harness.queue.sets.counts(made)
    assert (counts.members, counts.armed) == (0, 0)
    assert await harness.claim_all() == []


async def test_nothing_of_another_set_or_schedule_goes_with_it(harness):
    """The ids of both sets share every bucket."""
    goes = await filled(harness, 400)
    stays = await filled(harness, 400, name="stays", uid=_uid_in_the_buckets_of(goes))
    arming = harness.arming(namespace="shop")
    assert await harness.queue.writer.upsert([(arming, queueing.BLOB)], EPOCH)
    await removed(harness, goes, most=50)
    assert (await harness.queue.sets.counts(stays)).members == 400
    page = await harness.queue.members.pages.page(stays, limit=1_000)
    assert len(page.members) == 400
    assert await harness.queue.definitions.definition(arming.definition.id) is not None
    assert [record.name for record in await harness.queue.sets.all()] == ["stays"]


def _uid_in_the_buckets_of(other):
    bits = points.member_bits(other.uid, other.spread)
    uids = (str(uuid.uuid4()) for _ in range(100_000))
    return next(uid for uid in uids if points.member_bits(uid, other.spread) == bits)


async def test_from_the_first_step_on_no_member_fires_or_is_written(harness):
    made = await filled(harness, 500)
    step = await harness.queue.set_removals.step(made, EPOCH, most=10)
    assert not step.is_done
    assert await harness.claim_all() == []
    (answer,) = await harness.queue.members.put(made, [a_write("late")])
    assert answer.outcome is Outcome.DELETING
    assert (await harness.queue.sets.read("shop", "reminders")).state is SetState.DELETING


async def test_another_operator_goes_on_with_it(harness):
    made = await filled(harness, 600)
    first = await harness.queue.set_removals.step(made, EPOCH, most=100)
    # The first process has its progress in memory only.
    harness.queue.set_removals._walks.clear()
    total = first.removed
    while True:
        newer = messages.Epoch(EPOCH + 1)
        step = await harness.queue.set_removals.step(made, newer, most=100)
        total += step.removed
        if step.is_done:
            break
    assert total == 600
    with pytest.raises(queue_errors.Fenced):
        await filled(harness, 1, uid=str(uuid.uuid4()))


async def test_claimed_members_disappear_under_their_worker(harness):
    made = await filled(harness, 50)
    await harness.pass_time(2)
    claims = await harness.claim_all()
    assert claims
    await removed(harness, made)
    counts = await harness.queue.sets.counts(made)
    assert (counts.members, counts.armed, counts.in_flight) == (0, 0, 0)


async def test_a_set_that_is_not_there_is_removed_at_once_and_a_namesake_stays(harness):
    former = a_set(harness.queue)
    await removed(harness, former)
    assert await harness.queue.sets.all() == []
    namesake = await filled(harness, 5, uid=str(uuid.uuid4()))
    await removed(harness, former)
    assert [record.uid for record in await harness.queue.sets.all()] == [namesake.uid]
    assert (await harness.queue.sets.counts(namesake)).members == 5
