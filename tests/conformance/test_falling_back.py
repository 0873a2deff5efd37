"""A server that went back in time: what was due before waits, what is due later does not."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from duepoint import clock as clocks
from duepoint.delayqueue import messages, sharding
from duepoint.delayqueue.claims import claiming
from duepoint.delayqueue.repair import suspectpoints
from duepoint.delayqueue.wire import nodes
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from tests.support import queueing, redisserver
from tests.support.queueing import EPOCH, SECOND_US, a_retry, moved

SHARD = messages.ShardId(0)
HOUR_US = 3_600 * SECOND_US


@pytest.fixture(params=[*redisserver.KINDS, "cluster"])
async def harness(request, shared_servers, shared_clusters, key_prefix):
    is_cluster = request.param == "cluster"
    server = shared_clusters("valkey") if is_cluster else shared_servers(request.param)
    made = await queueing.redis_harness(server.url, key_prefix, shards=1)
    yield made
    await made.close()


async def change_server(harness, other="another"):
    """The state is that of another process of the server."""
    meta = harness.server.shard(SHARD).meta
    await harness.server.redis.hset(meta, "server", other)


async def forget_claims(harness, count=1):
    """The state is older by so many claims."""
    meta = harness.server.shard(SHARD).meta
    await harness.server.redis.hincrby(meta, "mark", -count)


async def a_look(harness):
    """Any claim, which tells a server from another."""
    await harness.arm(name="looked-at")
    claim = await harness.claim_one()
    await harness.queue.settlements.settle(
        claim, messages.Settlement(finished=(claim.points[0].member,))
    )
    await harness.queue.writer.remove(
        claim.points[0].schedule_id, harness.definition(name="looked-at").uid, "default", EPOCH
    )


def a_held(chain, back_us):
    point = dataclasses.replace(
        chain, kind=points.PointKind.HELD, slot_us=chain.due_us, due_us=points.HELD_US
    )
    record = messages.OccurrenceRecord(back_us=back_us, from_us=chain.due_us)
    return messages.Occurrence(point=point, record=record, source=chain.member)


async def hold(harness, claim):
    """What a worker does with a chain in doubt."""
    (chain,) = claim.points
    settlement = messages.Settlement(
        chains=(moved(chain, 3600),), occurrences=(a_held(chain, claim.back_us),)
    )
    settled = await harness.queue.settlements.settle(claim, settlement)
    assert (settled.lost, settled.remaining) == (False, 0)


async def held(harness):
    return [one async for part in harness.queue.suspect_points.held(SHARD) for one in part]


async def test_the_first_look_at_a_server_is_no_doubt(harness):
    await a_look(harness)
    assert await harness.queue.suspect_points.shards() == ()
    await harness.arm()
    assert (await harness.claim_one()).back_us == 0


async def test_a_claim_finds_out_that_the_server_is_another_one(harness):
    await a_look(harness)
    await change_server(harness)
    began = harness.now_us()
    await harness.arm()
    claim = await harness.claim_one()
    assert began <= claim.back_us <= harness.now_us() + SECOND_US
    (suspect,) = await harness.queue.suspect_points.shards()
    assert suspect == suspectpoints.SuspectShard(shard=SHARD, back_us=claim.back_us)


async def test_the_leader_finds_out_before_any_claim_that_the_server_is_another_one(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    began = harness.now_us()
    (suspect,) = await harness.queue.suspect_points.shards(every=True)
    # Less for how long the connection has known the server, which is for some seconds.
    assert began - 5 * SECOND_US <= suspect.back_us <= harness.now_us() + SECOND_US
    assert (await harness.claim_one()).back_us == suspect.back_us


async def test_a_claim_finds_out_that_claims_are_forgotten(harness):
    await a_look(harness)
    await forget_claims(harness)
    await harness.arm()
    assert (await harness.claim_one()).back_us > 0


async def test_a_doubt_is_found_once(harness):
    await a_look(harness)
    await change_server(harness)
    await forget_claims(harness)
    await harness.arm(due_in=-5.0)
    back_us = (await harness.claim_one()).back_us
    await harness.pass_time(0.01)
    await harness.arm(name="other")
    assert (await harness.claim_one()).back_us == back_us


async def test_a_doubt_is_told_among_the_outcomes(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    claim = await harness.claim_one()
    ledger = harness.queue.ledger()
    entries = await ledger.read_outcomes("status", "me", shards=[SHARD])
    assert [one.back_us for one in entries] == [claim.back_us]
    await ledger.ack("status", entries)


async def test_a_retry_that_was_due_before_waits(harness):
    await harness.arm()
    claim = await harness.claim_one()
    retry = a_retry(claim.points[0], due_us=harness.now_us() - 1)
    settlement = messages.Settlement(chains=(moved(claim.points[0], 3600),), occurrences=(retry,))
    await harness.queue.settlements.settle(claim, settlement)
    await change_server(harness)
    assert await harness.claim_all() == []
    (one,) = await held(harness)
    assert one.point.member == retry.point.member
    assert one.record == retry.record
    assert one.definition == harness.definition()


async def test_a_chain_goes_on_beside_what_waits(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    claim = await harness.claim_one()
    await hold(harness, claim)
    (one,) = await held(harness)
    assert one.point.kind is points.PointKind.HELD
    assert one.record.back_us == claim.back_us
    assert await harness.claim_all() == []


async def test_a_check_does_not_wait(harness):
    await a_look(harness)
    known = harness.definition()
    await harness.arm(due_in=60.0)
    check = points.check(known.id, known.timing_version, 1)
    await harness.queue.occurrences.enqueue(known, check, messages.OccurrenceRecord(), EPOCH)
    await change_server(harness)
    claim = await harness.claim_one()
    assert [point.kind for point in claim.points] == [points.PointKind.CHECK]


async def test_an_old_claim_that_runs_out_waits_too(harness):
    await harness.arm()
    await harness.claim_one(lease_seconds=0.05)
    await change_server(harness)
    await harness.pass_time(0.1)
    claim = await harness.claim_one()
    assert claim.reclaimed == 1
    assert claim.points[0].due_us <= claim.back_us


async def test_what_has_ended_is_gone(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    await hold(harness, await harness.claim_one())
    compared = suspectpoints.PointComparison(gone=await held(harness))
    assert await harness.queue.suspect_points.apply(SHARD, compared, EPOCH) == 1
    assert await held(harness) == []
    assert [one async for one in harness.queue.occurrences.all_occurrences(SHARD)] == []


async def test_the_reader_of_outcomes_learns_of_what_has_ended(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    await hold(harness, await harness.claim_one())
    await harness.outcomes()
    compared = suspectpoints.PointComparison(gone=await held(harness))
    points_of = harness.queue.suspect_points
    assert await points_of.apply(SHARD, compared, EPOCH, outcomes=b"news") == 1
    assert await harness.outcomes() == [b"news"]


async def test_what_has_not_ended_is_due_at_once_and_does_not_wait_again(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    await hold(harness, await harness.claim_one())
    (one,) = await held(harness)
    record = msgspec.structs.replace(one.record, from_us=one.record.from_us + 1)
    compared = suspectpoints.PointComparison(due=[(one, record)])
    assert await harness.queue.suspect_points.apply(SHARD, compared, EPOCH) == 1
    await harness.pass_time(0.01)
    claim = await harness.claim_one()
    assert [point.member for point in claim.points] == [one.point.member]
    assert claim.points[0].due_us > claim.back_us
    assert claim.records == {one.point.member: record}


async def test_a_slot_that_waits_for_others_is_compared_once_in_each_doubt(harness):
    await harness.arm()
    claim = await harness.claim_one()
    waiting = a_retry(claim.points[0], due_us=harness.now_us() - 1)
    point = dataclasses.replace(waiting.point, kind=points.PointKind.QUEUED)
    waiting = messages.Occurrence(point=point, record=waiting.record)
    settlement = messages.Settlement(chains=(moved(claim.points[0], 3600),), occurrences=(waiting,))
    await harness.queue.settlements.settle(claim, settlement)
    await change_server(harness)
    assert await harness.claim_all() == []
    (one,) = await held(harness)
    compared = suspectpoints.PointComparison(due=[(one, None)])
    assert await harness.queue.suspect_points.apply(SHARD, compared, EPOCH) == 1
    await harness.pass_time(0.01)
    claim = await harness.claim_one()
    assert queueing.members([claim]) == [point.member]
    assert await harness.queue.claims.release(claim) == 1
    await harness.pass_time(0.01)
    await change_server(harness, "a third one")
    assert await harness.claim_all() == []
    assert [one.point.member for one in await held(harness)] == [point.member]


async def test_a_slot_that_waits_for_others_is_set_aside_before_it_is_due(harness):
    await harness.arm()
    claim = await harness.claim_one()
    waiting = a_retry(claim.points[0], due_us=harness.now_us() + HOUR_US)
    point = dataclasses.replace(waiting.point, kind=points.PointKind.QUEUED)
    retry = a_retry(moved(claim.points[0], -60), due_us=harness.now_us() + HOUR_US)
    settlement = messages.Settlement(
        chains=(moved(claim.points[0], 7_200),),
        occurrences=(messages.Occurrence(point=point, record=waiting.record), retry),
    )
    await harness.queue.settlements.settle(claim, settlement)
    suspect_points = harness.queue.suspect_points
    not_suspect = suspectpoints.SuspectShard(shard=SHARD, back_us=0)
    assert await suspect_points.set_aside(not_suspect, EPOCH) == 0
    await change_server(harness)
    assert await harness.claim_all() == []
    (suspect,) = await suspect_points.shards()
    assert await suspect_points.set_aside(suspect, EPOCH) == 1
    assert await suspect_points.set_aside(suspect, EPOCH) == 0
    assert await suspect_points.end(suspect, EPOCH) == "held"
    (one,) = await held(harness)
    assert (one.point.member, one.record) == (point.member, waiting.record)
    compared = suspectpoints.PointComparison(due=[(one, None)])
    assert await suspect_points.apply(SHARD, compared, EPOCH) == 1
    assert await suspect_points.set_aside(suspect, EPOCH) == 0
    await harness.pass_time(0.01)
    assert queueing.members(await harness.claim_all()) == [point.member]


async def test_a_slot_that_waits_for_others_and_came_after_the_doubt_is_left_alone(harness):
    await a_look(harness)
    await change_server(harness)
    await a_look(harness)
    (suspect,) = await harness.queue.suspect_points.shards()
    await harness.pass_time(0.01)
    await harness.arm(due_in=0.0)
    claim = await harness.claim_one()
    later = harness.now_us() + HOUR_US
    waiting = a_retry(claim.points[0], due_us=later)
    point = dataclasses.replace(waiting.point, kind=points.PointKind.QUEUED)
    settlement = messages.Settlement(
        chains=(moved(claim.points[0], 3600),),
        occurrences=(messages.Occurrence(point=point, record=waiting.record),),
    )
    await harness.queue.settlements.settle(claim, settlement)
    assert await harness.queue.suspect_points.set_aside(suspect, EPOCH) == 0
    assert await held(harness) == []


async def test_a_chain_that_waits_as_a_whole_is_put_back_with_its_runs(harness):
    rule = rules.Rule(timing=rules.Timing(schedules=("@every 1m",), max_runs=5))
    await a_look(harness)
    await change_server(harness)
    await harness.arm(rule=rule)
    claim = await harness.claim_one()
    (chain,) = claim.points
    whole = dataclasses.replace(chain, due_us=points.HELD_US)
    settlement = messages.Settlement(chains=(whole,), occurrences=(a_held(chain, claim.back_us),))
    await harness.queue.settlements.settle(claim, settlement)
    by_kind = {one.point.kind: one for one in await held(harness)}
    due_us = harness.now_us() + 60 * SECOND_US
    compared = suspectpoints.PointComparison(
        gone=[by_kind[points.PointKind.HELD]],
        chains=[(by_kind[points.PointKind.CHAIN], due_us)],
        started=[(chain.schedule_id, 3)],
    )
    assert await harness.queue.suspect_points.apply(SHARD, compared, EPOCH) == 2
    stored = await harness.queue.definitions.definition(chain.schedule_id)
    assert stored.started == 3
    (found,) = [one async for one in harness.queue.definitions.all_definitions(SHARD)]
    assert found.due_us == due_us


async def test_a_doubt_ends_when_nothing_of_it_is_left(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    claim = await harness.claim_one()
    (suspect,) = await harness.queue.suspect_points.shards()
    assert await harness.queue.suspect_points.end(suspect, EPOCH) == "claimed"
    await hold(harness, claim)
    assert await harness.queue.suspect_points.end(suspect, EPOCH) == "held"
    compared = suspectpoints.PointComparison(gone=await held(harness))
    await harness.queue.suspect_points.apply(SHARD, compared, EPOCH)
    await harness.arm(name="other", due_in=-30.0)
    assert await harness.queue.suspect_points.end(suspect, EPOCH) == "due"
    await hold(harness, await harness.claim_one())
    compared = suspectpoints.PointComparison(gone=await held(harness))
    await harness.queue.suspect_points.apply(SHARD, compared, EPOCH)
    assert await harness.queue.suspect_points.end(suspect, EPOCH) == ""
    assert await harness.queue.suspect_points.shards() == ()


async def test_what_is_held_after_the_end_of_a_doubt_is_found_all_the_same(harness):
    await a_look(harness)
    await harness.arm()
    claim = dataclasses.replace(await harness.claim_one(), back_us=harness.now_us())
    await hold(harness, claim)
    (suspect,) = await harness.queue.suspect_points.shards()
    assert suspect == suspectpoints.SuspectShard(shard=SHARD, back_us=0)
    assert await harness.queue.suspect_points.end(suspect, EPOCH) == "held"


async def test_a_sweep_leaves_alone_what_waits(harness):
    await a_look(harness)
    await change_server(harness)
    await harness.arm()
    await hold(harness, await harness.claim_one())
    before = await held(harness)
    cursor, more = None, True
    while more:
        swept = await harness.queue.sweeper.sweep(SHARD, cursor, EPOCH, due_of=lambda _known: 1)
        assert (swept.armed, swept.dropped, swept.mended) == (0, 0, 0)
        cursor = swept.cursor
        more = cursor is not None
    assert await held(harness) == before


async def test_a_shard_that_was_made_anew_is_in_no_doubt(harness):
    await harness.arm()
    await harness.claim_one()
    names = harness.server.shard(SHARD)
    lane = (await harness.queue.definitions.namespaces(SHARD)).popitem()[0]
    gone = (names.meta, names.heads, names.claims, names.leases, names.lane(lane))
    await harness.server.redis.unlink(*gone)
    await harness.pass_time(0.001)
    await harness.queue.membership.open(1, EPOCH)
    await harness.queue.layouts.read()
    await harness.arm(name="other")
    assert (await harness.claim_one()).back_us == 0


async def test_outcomes_of_a_lost_claim_say_so(harness):
    await harness.arm()
    claim = await harness.claim_one()
    stranger = dataclasses.replace(claim, id=messages.ClaimId(b"no such one!"))
    ledger = harness.queue.ledger()
    await harness.queue.settlements.settle(stranger, messages.Settlement(outcomes=b"late"))
    settlement = messages.Settlement(chains=(moved(claim.points[0], 60),), outcomes=b"told")
    await harness.queue.settlements.settle(claim, settlement)
    entries = await ledger.read_outcomes("status", "me", shards=[SHARD])
    assert {one.outcomes: one.is_lost for one in entries} == {b"late": True, b"told": False}
    await ledger.ack("status", entries)


# -- from when on nothing is in doubt ----------------------------------------------------------


@pytest.fixture(params=[*redisserver.KINDS, "cluster"])
async def newcomer(request, shared_servers, shared_clusters, key_prefix):
    """Another client, which met the server a moment ago, of a state of another process."""
    is_cluster = request.param == "cluster"
    server = shared_clusters("valkey") if is_cluster else shared_servers(request.param)
    former = await queueing.redis_harness(server.url, key_prefix, shards=1)
    await a_look(former)
    await change_server(former)
    made = await queueing.redis_harness(server.url, key_prefix, shards=1)
    yield made
    await made.close()
    await former.close()


async def test_what_became_due_since_the_server_answered_does_not_wait(newcomer):
    met_us = newcomer.now_us()
    await newcomer.pass_time(0.3)
    await newcomer.arm(due_in=-0.1)
    claim = await newcomer.claim_one()
    (chain,) = claim.points
    assert 0 < claim.back_us <= met_us + 50_000 < chain.due_us


async def test_a_server_that_was_met_long_ago_may_have_been_another_one_since(
    newcomer, monkeypatch
):
    monkeypatch.setattr(nodes, "_NEWLY_MET_SECONDS", 0.2)
    await newcomer.pass_time(0.3)
    began_us = newcomer.now_us()
    await newcomer.arm()
    assert (await newcomer.claim_one()).back_us >= began_us - 1_000


async def test_a_mark_that_the_server_told_itself_leaves_all_until_now_in_doubt(newcomer):
    await newcomer.arm()
    first = await newcomer.claim_one()
    assert first.back_us > 0
    await newcomer.pass_time(0.3)
    began_us = newcomer.now_us()
    await forget_claims(newcomer)
    await newcomer.arm(name="other")
    assert (await newcomer.claim_one()).back_us >= began_us - 1_000


# -- clocks that are wrong -----------------------------------------------------------------------


class WrongClocks(clocks.SystemClock):
    """True time is an hour before or after the server's; claims go by this machine's clock.

    Attributes:
        true_us: the true time less the server's.
        own_us: this machine's clock less the true time.
        is_confirmed: whether two clocks have agreed.
    """

    def __init__(self) -> None:
        self.true_us = self.own_us = 0
        self.is_confirmed = True

    def right_us(self) -> int:
        return super().now_us() + self.true_us

    def now_us(self) -> int:
        return min(self.right_us(), self.right_us() + self.own_us)

    def confirmed_us(self) -> int | None:
        return self.right_us() if self.is_confirmed else None


@pytest.fixture(params=[*redisserver.KINDS, "cluster"])
async def wrong(request, shared_servers, shared_clusters, key_prefix):
    """A client that met the server a moment ago, of a state of another process; and its clocks."""
    is_cluster = request.param == "cluster"
    server = shared_clusters("valkey") if is_cluster else shared_servers(request.param)
    former = await queueing.redis_harness(server.url, key_prefix, shards=1)
    await a_look(former)
    await change_server(former)
    wrong = WrongClocks()
    made = await queueing.redis_harness(server.url, key_prefix, shards=1, clock=wrong)
    yield made, wrong
    await made.close()
    await former.close()


async def a_claim(harness):
    (answer,) = await harness.queue.claims.claim([SHARD], worker="w")
    return answer


async def stored_suspicion(harness):
    back = await harness.server.redis.hget(harness.server.shard(SHARD).meta, "back")
    return None if back is None else int(back)


@pytest.mark.parametrize("own_us", [0, HOUR_US], ids=["right worker", "worker ahead"])
async def test_a_server_that_went_back_with_a_clock_ahead_holds_up_what_is_due_by_now(
    wrong, own_us
):
    harness, its_clocks = wrong
    its_clocks.true_us, its_clocks.own_us = -HOUR_US, own_us
    await harness.arm(due_in=-3_605.0)
    claim = (await a_claim(harness)).claim
    right_us = its_clocks.right_us()
    assert right_us - SECOND_US <= claim.back_us <= right_us + 5 * SECOND_US
    await hold(harness, claim)
    (one,) = await held(harness)
    compared = suspectpoints.PointComparison(due=[(one, None)])
    await harness.queue.suspect_points.apply(SHARD, compared, EPOCH)
    names = harness.server.shard(SHARD)
    due_us = await harness.server.redis.zscore(names.lane(int(one.lane)), one.point.member)
    assert due_us == claim.back_us + 1


@pytest.mark.parametrize("behind_us", [3 * SECOND_US, HOUR_US], ids=["3 s", "an hour"])
async def test_a_server_that_went_back_with_a_clock_behind_holds_up_what_may_have_run(
    wrong, behind_us
):
    harness, its_clocks = wrong
    its_clocks.true_us = behind_us
    met_us = its_clocks.right_us()
    await harness.arm(due_us=harness.now_us() - SECOND_US)
    claim = (await a_claim(harness)).claim
    assert met_us - SECOND_US <= claim.back_us <= its_clocks.right_us() + 5 * SECOND_US
    await hold(harness, claim)
    (suspect,) = await harness.queue.suspect_points.shards()
    compared = suspectpoints.PointComparison(gone=await held(harness))
    await harness.queue.suspect_points.apply(SHARD, compared, EPOCH)
    await harness.arm(name="other", due_us=met_us - 2 * SECOND_US)
    assert await harness.queue.suspect_points.end(suspect, EPOCH) == "due"


async def test_a_worker_without_an_agreed_time_leaves_it_to_others_until_when_points_wait(wrong):
    harness, its_clocks = wrong
    its_clocks.true_us, its_clocks.is_confirmed = -HOUR_US, False
    await harness.arm(due_in=-3_605.0)
    meta = harness.server.shard(SHARD).meta
    before = await harness.server.redis.hgetall(meta)
    answer = await a_claim(harness)
    assert answer.claim is None
    assert 0 < answer.wait_seconds <= 1.0
    assert "no two clocks agree" in str(answer.trouble)
    assert await harness.server.redis.hgetall(meta) == before

    its_clocks.is_confirmed = True
    claim = (await a_claim(harness)).claim
    assert claim.back_us <= its_clocks.right_us() + 5 * SECOND_US


async def test_a_leader_decides_for_a_worker_without_an_agreed_time(wrong):
    harness, its_clocks = wrong
    its_clocks.true_us, its_clocks.is_confirmed = -HOUR_US, False
    await harness.arm(due_in=-3_605.0)
    assert (await a_claim(harness)).claim is None
    its_clocks.is_confirmed = True
    (suspect,) = await harness.queue.suspect_points.shards(every=True)
    its_clocks.is_confirmed = False
    assert suspect.back_us <= its_clocks.right_us() + 5 * SECOND_US
    assert (await a_claim(harness)).claim.back_us == suspect.back_us


async def test_another_state_is_left_to_others_too_where_claims_are_forgotten(wrong):
    harness, its_clocks = wrong
    its_clocks.true_us = -HOUR_US
    await harness.arm(due_in=-3_605.0)
    back_us = (await a_claim(harness)).claim.back_us
    await forget_claims(harness)
    its_clocks.is_confirmed = False
    await harness.arm(name="other", due_in=-3_605.0)
    assert (await a_claim(harness)).claim is None
    assert await stored_suspicion(harness) == back_us


async def test_where_no_clocks_ever_agree_the_server_s_is_taken_in_the_end(wrong, monkeypatch):
    harness, its_clocks = wrong
    monkeypatch.setattr(claiming, "_UNDATED_SECONDS", 0.2)
    its_clocks.true_us, its_clocks.is_confirmed = -HOUR_US, False
    await harness.arm(due_in=-3_605.0)
    assert (await a_claim(harness)).claim is None
    await harness.pass_time(0.2)
    claim = (await a_claim(harness)).claim
    assert its_clocks.right_us() + HOUR_US - SECOND_US <= claim.back_us
    await change_server(harness, "a third one")
    await harness.arm(name="other", due_in=-3_605.0)
    assert (await a_claim(harness)).claim is None  # it is waited for as long again


async def test_a_new_index_needs_no_agreed_time(wrong):
    harness, its_clocks = wrong
    its_clocks.is_confirmed = False
    await harness.server.redis.hdel(harness.server.shard(SHARD).meta, "server")
    await harness.arm()
    answer = await a_claim(harness)
    assert answer.claim.back_us == 0
    assert await stored_suspicion(harness) is None


async def pass_of_moving(harness, former):
    """How many the former shard has kept."""
    kept, cursor = 0, None
    while True:
        step = await harness.queue.export.move(former, cursor, EPOCH)
        kept, cursor = kept + step.left_out, step.cursor
        if cursor is None:
            return kept


async def test_what_waits_moves_to_no_other_shard_before_it_was_compared(harness):
    await harness.arm()
    claim = await harness.claim_one()
    retry = a_retry(claim.points[0], due_us=harness.now_us() - 1)
    settlement = messages.Settlement(chains=(moved(claim.points[0], 3600),), occurrences=(retry,))
    await harness.queue.settlements.settle(claim, settlement)
    await change_server(harness)
    assert await harness.claim_all() == []
    layout = await harness.queue.resharding.announce(2, EPOCH)
    (former,) = set(sharding.all_shards(layout)) - set(sharding.own_shards(layout))

    assert await pass_of_moving(harness, former) > 0
    waits = [one async for part in harness.queue.suspect_points.held(former) for one in part]
    assert [one.point.member for one in waits] == [retry.point.member]
    assert await harness.claim_all() == []

    await harness.queue.suspect_points.apply(
        former, suspectpoints.PointComparison(gone=waits), EPOCH
    )
    (suspect,) = await harness.queue.suspect_points.shards()
    assert await harness.queue.suspect_points.end(suspect, EPOCH) == ""
    assert await pass_of_moving(harness, former) == 0
