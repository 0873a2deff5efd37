"""Each script alone, by its keys and replies."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.schedules import points
from duepoint.schedules import rule as rules
from tests.support import queueing, redisusers

CLAIMED = float(points.DUE_LIMIT_US)
A, B, C = (bytes([65 + n]) * 12 for n in range(3))  # chains of three schedules
OCCURRENCE = A + bytes([points.PointKind.RETRY]) + (5_000_000).to_bytes(8, "big")
MINE, OTHER = b"my claim id!", b"another's id"


# -- claim --------------------------------------------------------------------------------------


async def test_the_callers_clock_behind_delays_and_ahead_does_not_hasten(bench):
    now = await _server_us(bench)
    await bench.put(A, now - 1_000)
    hour = 3_600_000_000
    kind, wait, *_ = await bench.claim(MINE, cap=now - hour)
    assert kind == b"idle"
    assert abs(int(wait) - hour) < 60_000_000
    await bench.put(B, now + hour)
    reply = await bench.claim(MINE, cap=now + 2 * hour)
    assert reply[8] == [b"1", [A, str(now - 1_000).encode()]]


async def test_a_lease_is_not_shortened_by_a_clock_that_is_behind_the_callers(bench):
    """It would be over as soon as the clock is right again, although its owner lives."""
    now = await _server_us(bench)
    await bench.put(A, now - 1_000)
    await bench.claim(MINE, lease=10_000_000)
    ahead = now + 300_000_000  # what the server says, were its clock put back by five minutes
    await bench.client.zadd(bench.names.claims, {MINE: ahead})
    await bench.client.zadd(bench.names.lane(bench.lane), {A: CLAIMED + ahead})
    await bench.claim(OTHER, cap=ahead)
    assert await bench.client.zscore(bench.names.claims, MINE) == ahead
    await bench.claim(OTHER, cap=now)
    assert await bench.client.zscore(bench.names.claims, MINE) < now + 60_000_000


async def test_a_worker_that_skips_suspects_gets_nothing_that_has_lost_two_owners(bench):
    await bench.put(A, 1_000)
    for died in (b"died first..", b"died second."):
        await bench.claim(died, lease=0)
    await bench.put(B, await _server_us(bench) + 5_000_000)
    kind, wait, _, left_alone, *_ = await bench.claim(MINE, skip_suspects=True)
    assert (kind, left_alone) == (b"idle", 1)
    assert 4_000_000 < int(wait) <= 5_000_000, "what is left alone is nothing to wait for"
    await bench.put(C, 1_500)
    fresh = await bench.claim(MINE, skip_suspects=True)
    assert fresh[8] == [b"1", [C, b"1500"]]
    assert (fresh[6], fresh[11]) == (0, 1)
    taken_over = await bench.claim(OTHER)
    assert (taken_over[4], taken_over[8], taken_over[11]) == (2, [b"1", [A, b"1000"]], 0)


@pytest.mark.parametrize("score", [-1.0, float("-inf")])
async def test_a_due_that_cannot_be_is_handed_over_as_a_stranger(bench, score):
    await bench.put(A, score)
    (answer,) = await bench.queue.claims.claim([0], worker="w")
    assert answer.claim.points == ()
    assert answer.claim.unknown_members == ((A, score),)


async def test_a_member_of_no_known_format_is_handed_over_as_a_stranger(bench):
    await bench.put(b"from the future", 1)
    (answer,) = await bench.queue.claims.claim([0], worker="w")
    assert answer.claim.unknown_members == ((b"from the future", 1.0),)
    letter = _letter(b"from the future")
    settled = await bench.queue.settlements.settle(answer.claim, letter)
    assert (settled.applied, settled.remaining) == (1, 0)
    assert await bench.scores() == {}


async def test_more_lanes_than_one_script_may_touch_are_claimed_in_turns(bench):
    for lane in range(1, 101):
        await bench.client.zadd(bench.names.lane(lane), {bytes([lane]) * 12: lane})
        await bench.client.zadd(bench.names.heads, {str(lane): lane})
    seen = set()
    while True:
        (answer,) = await bench.queue.claims.claim([0], worker="w")
        if answer.claim is None:
            break
        seen.update(point.member for point in answer.claim.points)
    assert len(seen) == 100


async def test_a_lane_behind_a_thousand_older_ones_of_a_neighbour_has_its_turn(bench):
    """Of 1,500 lanes the later ones are looked at in every other second of the server."""
    async with bench.client.pipeline(transaction=False) as pipe:
        for lane in range(1, 1_501):
            pipe.zadd(bench.names.lane(lane), {lane.to_bytes(12, "big"): lane})
            pipe.zadd(bench.names.heads, {str(lane): lane})
            text = b"nquiet" if lane == 1_500 else b"sset-%d/loud/0" % lane
            pipe.hset(bench.names.interned, f"n:{lane}", text)
        await pipe.execute()
    claimed = []
    for _ in range(5):  # a slow claim may miss the second
        while (now := await bench.client.time())[0] % 2 == 0 or now[1] > 500_000:
            pass
        (answer,) = await bench.queue.claims.claim([0], worker="w")
        claimed += [int.from_bytes(point.member, "big") for point in answer.claim.points]
        if 1_500 in claimed:
            return
    pytest.fail(f"of the lanes {claimed} none is the neighbour's")


async def test_racing_workers_share_what_is_due_without_overlap(redis_server, key_prefix):
    harnesses = [
        await queueing.redis_harness(redis_server.url, key_prefix, shards=1) for _ in range(4)
    ]
    server = harnesses[0].server
    lane = server.shard(0).lane(1)
    wanted = {number.to_bytes(12, "big"): number + 1 for number in range(2_000)}
    await server.redis.zadd(lane, wanted)
    await server.redis.zadd(server.shard(0).heads, {"1": 1})

    async def take_all(queue):
        taken = []
        while True:
            (answer,) = await queue.claims.claim([0], worker="w", batch=37)
            if answer.claim is None:
                return taken
            taken += [point.member for point in answer.claim.points]

    shares = await asyncio.gather(*(take_all(harness.queue) for harness in harnesses))
    everything = [member for share in shares for member in share]
    assert len(everything) == len(wanted)
    assert set(everything) == set(wanted)
    for harness in harnesses:
        await harness.close()


# -- settle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [3, 0], ids=["all at once", "one by one"])
async def test_both_roads_of_a_settlement_end_alike(bench, whole):
    for member, due in ((A, 1), (B, 2), (OCCURRENCE, 3)):
        await bench.put(member, due)
    await bench.client.zadd(bench.names.occ, {OCCURRENCE: 0})
    await bench.client.hset(bench.names.occrec, OCCURRENCE, b"record")
    await bench.claim(MINE)
    retry = B + bytes([points.PointKind.RETRY]) + (7).to_bytes(8, "big")
    reply = await bench.settle(
        MINE,
        moved=(("100", A), ("200", B)),
        finished=(OCCURRENCE,),
        occurrences=("150", retry),
        records=(retry, b"new record"),
        whole=whole,
        outcomes=(b"o",),
    )
    assert reply == [b"settled", 3, 0]
    assert await bench.scores() == {A: 100, B: 200, retry: 150}
    assert await bench.head() == 100
    assert await bench.client.zrange(bench.names.occ, 0, -1) == [b"", retry]
    assert await bench.client.hgetall(bench.names.occrec) == {b"": b"", retry: b"new record"}
    assert await bench.client.zcard(bench.names.claims) == 1
    assert await bench.client.hkeys(bench.names.leases) == [b""]
    assert await bench.client.xlen(bench.names.runs) == 1


async def test_the_same_token_after_a_rollback_does_not_let_a_late_owner_settle(bench):
    # A failover lost the first claim; the new primary gave the same token to another worker.
    await bench.put(A, 1)
    await bench.put(B, 2)
    reply = await bench.claim(MINE)
    token = reply[2]
    await bench.client.zrem(bench.names.claims, MINE)
    await bench.client.zadd(bench.names.claims, {OTHER: token})
    held = await bench.scores()
    assert await bench.settle(MINE, finished=(A, B), whole=2) == [b"lost"]
    assert await bench.scores() == held
    assert await bench.settle(OTHER, finished=(A,)) == [b"settled", 1, 1]


# -- sweep --------------------------------------------------------------------------------------


async def test_the_sweep_arms_a_chain_whose_claim_does_not_exist_where_it_belongs(bench):
    harness = queueing.Harness(bench.queue, lambda: 10**15, asyncio.sleep)
    await harness.arm(due_us=1_000_000)
    (answer,) = await bench.queue.claims.claim([0], worker="w")
    await bench.client.zrem(bench.names.claims, answer.claim.id)
    assert await harness.rearm() == 0  # nobody said where
    assert (await bench.queue.claims.claim([0], worker="heir"))[0].claim is None
    assert await harness.rearm(3_000_000) == 1
    (again,) = await bench.queue.claims.claim([0], worker="heir")
    assert [point.due_us for point in again.claim.points] == [3_000_000]


async def test_the_sweep_arms_no_slot_that_is_an_occurrence_already(bench):
    harness = queueing.Harness(bench.queue, lambda: 10**15, asyncio.sleep)
    await harness.arm(due_us=1_000_000)
    bench.lane = await bench.queue.definitions.lane_of(0, "default")
    (answer,) = await bench.queue.claims.claim([0], worker="w")
    (chain,) = answer.claim.points
    retry = queueing.a_retry(chain, due_us=10**14)
    await bench.queue.settlements.settle(
        answer.claim, messages.Settlement(chains=(queueing.moved(chain, 0),), occurrences=(retry,))
    )
    (answer,) = await bench.queue.claims.claim([0], worker="w")
    planned = queueing.a_planned(chain, 1_500_000)
    moved = messages.Planning(chain=chain, slots=(planned,), next_due_us=2_000_000)
    await bench.queue.settlements.split(answer.claim, [moved])
    await bench.client.zrem(bench.names.lane(bench.lane), chain.member)
    asked = []
    await harness.sweep(due_of=lambda known: asked.append(known.not_before_us) or 2_000_000)
    assert asked == [max(harness.definition().not_before_us, 1_500_000)]


@pytest.mark.parametrize("missing", ["hset", "zadd", "zrem", "zcount", "hmget"])
async def test_a_claim_that_a_missing_right_cuts_short_leaves_its_points_to_be_claimed(
    lonely_bench, own_server, missing
):
    harness = queueing.Harness(lonely_bench.queue, lambda: 10**15, asyncio.sleep)
    await harness.arm(due_us=1_000_000)
    with own_server.client() as client:
        client.execute_command("ACL", "SETUSER", redisusers.name("worker"), f"-{missing}")
        with contextlib.suppress(errors.TryLater):
            await lonely_bench.queue.claims.claim([0], worker="w", lease_seconds=0)
        client.execute_command("ACL", "SETUSER", redisusers.name("worker"), f"+{missing}")
    (answer,) = await lonely_bench.queue.claims.claim([0], worker="heir")
    assert [point.due_us for point in answer.claim.points] == [1_000_000]


@pytest.mark.parametrize("record", [b"", b"\x01", b"\x05\xa1w\x90", b"\xc1 no such type"])
async def test_a_claim_whose_record_cannot_be_read_holds_up_nobody(bench, record):
    harness = queueing.Harness(bench.queue, lambda: 10**15, asyncio.sleep)
    await harness.arm(name="one", due_us=1_000_000)
    (lost,) = await bench.queue.claims.claim([0], worker="w", lease_seconds=0)
    await bench.client.hset(bench.names.leases, lost.claim.id, record)
    await harness.arm(name="two", due_us=2_000_000)
    (answer,) = await bench.queue.claims.claim([0], worker="heir")
    assert [point.due_us for point in answer.claim.points] == [2_000_000]
    assert await harness.rearm(1_500_000) == 1
    (answer,) = await bench.queue.claims.claim([0], worker="heir")
    assert [point.due_us for point in answer.claim.points] == [1_500_000]


async def test_a_rule_that_cannot_be_read_hides_its_own_definition_only(bench):
    harness = queueing.Harness(bench.queue, lambda: 10**15, asyncio.sleep)
    broken, sound = (
        {"name": name, "rule": rules.Rule(timing=rules.Timing(schedules=(text,)))}
        for name, text in (("broken", "@every 7m"), ("sound", "@every 8m"))
    )
    await harness.arm(**broken)
    await harness.arm(**sound)
    interned = await bench.client.hgetall(bench.names.interned)
    (rule,) = [number for number, text in interned.items() if number[:2] == b"n:" and b"7m" in text]
    await bench.client.hset(bench.names.interned, rule, b"r{not a rule")
    bench.harness.meet_another_server()
    ids = [harness.definition(**one).id for one in (broken, sound)]
    found = await bench.queue.definitions.read_definitions(0, ids)
    assert [one.name for one in found.values()] == ["sound"]


# -- steps --------------------------------------------------------------------------------------


async def _server_us(bench):
    seconds, us = await bench.client.time()
    return seconds * 1_000_000 + us


def _letter(member):
    from duepoint.delayqueue import messages

    return messages.Settlement(
        dead=(messages.DeadLetter(member=member, entry={"reason": "UnknownFormat"}),)
    )
