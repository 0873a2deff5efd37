"""Delivery to a user's stream: the entry and the end of its point are written together."""

from __future__ import annotations

import dataclasses

import pytest

from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.schedules import points
from tests.support import queueing, redisserver, shardstats


@pytest.fixture(params=redisserver.KINDS)
def server(request, shared_servers):
    return shared_servers(request.param)


def chain_goes_on(claim, seconds=60.0):
    return tuple(queueing.moved(point, seconds) for point in claim.points)


def a_settlement(claim, *, outcomes=b"told", number=1):
    return messages.Settlement(chains=chain_goes_on(claim), outcomes=outcomes, number=number)


def entries(claim, *, name="ticks", max_length=100):
    return messages.StreamEntries(
        namespace="default",
        name=name,
        max_length=max_length,
        same=("trigger", "Schedule"),
        names=("id",),
        members=[point.member for point in claim.points],
        values=[(point.member.hex(),) for point in claim.points],
    )


async def ids_in(harness, name="ticks"):
    """Return the ``id`` of each entry, in order; check that each entry has both fields."""
    found = await harness.server.redis.xrange(harness.server.keys.stream("default", name))
    assert all(entry[b"trigger"] == b"Schedule" for _, entry in found)
    return [entry[b"id"].decode() for _, entry in found]


async def test_the_entry_is_there_and_its_point_is_settled(harness):
    await harness.arm()
    claim = await harness.claim_one()
    handed = await harness.queue.settlements.deliver(claim, a_settlement(claim), entries(claim))
    assert handed == frozenset()
    assert await ids_in(harness) == [claim.points[0].member.hex()]
    assert await harness.outcomes() == [b"told"]
    total = await harness.total()
    assert (total.points, total.claimed, total.claims) == (1, 0, 0)


async def test_asked_twice_it_appends_once(harness):
    """The first reply was lost; the claim goes on with another point."""
    for name in ("one", "two"):
        await harness.arm(name=name, namespace="default")
    claims = await harness.claim_all()
    claim = max(claims, key=lambda claim: len(claim.points))
    first = queueing.moved(claim.points[0], 60)
    if len(claim.points) == 2:
        part = messages.Settlement(chains=(first,), outcomes=b"told")
        of_one = messages.StreamEntries(
            namespace="default", name="ticks", max_length=9, names=("id", "trigger"),
            members=[first.member], values=[("a", "Schedule")],
        )  # fmt: skip
        assert await harness.queue.settlements.deliver(claim, part, of_one) == frozenset()
        assert await harness.queue.settlements.deliver(claim, part, of_one) == frozenset()
        assert await ids_in(harness) == ["a"]
        return
    settlement = a_settlement(claim)
    assert await harness.queue.settlements.deliver(claim, settlement, entries(claim)) == frozenset()
    again = await harness.queue.settlements.deliver(claim, settlement, entries(claim))
    assert again is None  # it ended with the first one
    assert len(await ids_in(harness)) == 1
    assert await harness.outcomes() == [b"told"]


async def test_a_claim_that_was_lost_appends_nothing_and_tells_nothing(harness):
    await harness.arm()
    late = await harness.claim_one(lease_seconds=0.05)
    await harness.pass_time(0.1)
    now = await harness.claim_one(worker="w2")
    handed = await harness.queue.settlements.deliver(
        late, a_settlement(late, outcomes=b"late"), entries(late)
    )
    assert handed is None
    assert await ids_in(harness) == []
    assert (
        await harness.queue.settlements.deliver(now, a_settlement(now), entries(now)) == frozenset()
    )
    assert await harness.outcomes() == [b"told"]
    assert len(await ids_in(harness)) == 1


async def test_what_is_not_held_any_more_is_named_and_nothing_is_done(harness):
    for name in ("one", "two", "three", "four", "five"):  # two of them share a shard
        await harness.arm(name=name, namespace="default")
    claim = max(await harness.claim_all(), key=lambda claim: len(claim.points))
    assert len(claim.points) > 1
    gone = claim.points[0]
    names = {
        harness.definition(name=name, namespace="default").id: f"uid-of-{name}"
        for name in ("one", "two", "three", "four", "five")
    }
    await harness.queue.writer.remove(
        gone.schedule_id, names[gone.schedule_id], "default", queueing.EPOCH
    )
    handed = await harness.queue.settlements.deliver(claim, a_settlement(claim), entries(claim))
    assert handed == frozenset({gone.member})
    assert await ids_in(harness) == []
    assert await harness.outcomes() == []
    rest = messages.Settlement(
        chains=tuple(queueing.moved(point, 60) for point in claim.points[1:]), number=2
    )
    kept = entries(claim)
    kept = messages.StreamEntries(
        namespace="default", name="ticks", max_length=9, names=kept.names, same=kept.same,
        members=kept.members[1:], values=kept.values[1:],
    )  # fmt: skip
    assert await harness.queue.settlements.deliver(claim, rest, kept) == frozenset()
    assert len(await ids_in(harness)) == len(claim.points) - 1
    left = {stats.shard: stats.claims for stats in await shardstats.read(harness.queue)}
    assert left[claim.shard] == 0


async def test_an_occurrence_ends_with_its_entry(harness):
    await harness.arm()
    claim = await harness.claim_one()
    retry = queueing.a_retry(claim.points[0], due_us=harness.now_us() - 1)
    await harness.queue.settlements.settle(
        claim, messages.Settlement(occurrences=(retry,), chains=chain_goes_on(claim))
    )
    again = await harness.claim_one()
    assert [point.kind for point in again.points] == [points.PointKind.RETRY]
    done = messages.Settlement(finished=(again.points[0].member,))
    assert await harness.queue.settlements.deliver(again, done, entries(again)) == frozenset()
    assert (await harness.total()).points == 1  # the chain


async def two_streams(harness):
    """Return a claim of several points, with the entries of its first point and of the others."""
    for name in ("one", "two", "three", "four", "five"):  # two of them share a shard
        await harness.arm(name=name, namespace="default")
    claim = max(await harness.claim_all(), key=lambda claim: len(claim.points))
    assert len(claim.points) > 1
    every = entries(claim)
    groups = [
        dataclasses.replace(
            every, name=name, members=every.members[part], values=every.values[part]
        )
        for name, part in (("ticks", slice(0, 1)), ("tocks", slice(1, None)))
    ]
    return claim, groups


async def test_entries_of_several_streams_go_in_with_one_settlement(harness):
    claim, groups = await two_streams(harness)
    assert (
        await harness.queue.settlements.deliver(claim, a_settlement(claim), *groups) == frozenset()
    )
    first, *others = [point.member.hex() for point in claim.points]
    assert await ids_in(harness, "ticks") == [first]
    assert await ids_in(harness, "tocks") == others
    assert await harness.outcomes() == [b"told"]
    left = {stats.shard: stats.claims for stats in await shardstats.read(harness.queue)}
    assert left[claim.shard] == 0


@pytest.mark.parametrize("harness", redisserver.KINDS, indirect=True)
@pytest.mark.parametrize("bad", [0, 1], ids=["first", "second"])
async def test_where_one_stream_refuses_none_has_an_entry_and_all_points_are_held(harness, bad):
    claim, groups = await two_streams(harness)
    refusing, other = groups[bad], groups[1 - bad]
    await harness.server.redis.set(harness.server.keys.stream("default", refusing.name), "mine")
    with pytest.raises(queue_errors.WrongType):
        await harness.queue.settlements.deliver(claim, a_settlement(claim, outcomes=b""), *groups)
    assert await ids_in(harness, other.name) == []
    assert await harness.outcomes() == []
    settled = await harness.queue.settlements.settle(claim, a_settlement(claim, outcomes=b"rest"))
    assert (settled.applied, settled.remaining) == (len(claim.points), 0)
