"""maxRuns: the definition counts each started slot once."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.schedules import rule as rules
from tests.support.queueing import a_retry, moved

Settlement = messages.Settlement

LIMITED = rules.Rule(timing=rules.Timing(schedules=("@every 1m",), max_runs=3))


async def stored(harness, **changes):
    wanted = harness.definition(**changes)
    return await harness.queue.definitions.definition(wanted.id)


async def a_claim(harness, *, lease_seconds=10.0, **changes):
    await harness.arm(rule=LIMITED, **changes)
    (claim,) = await harness.claim_all(lease_seconds=lease_seconds)
    return claim, claim.points[0]


async def test_a_started_slot_is_counted_with_the_settlement_that_tells_of_it(harness):
    claim, point = await a_claim(harness)
    settlement = Settlement(chains=(moved(point, 60),), counted=(point.member,))
    await harness.queue.settlements.settle(claim, settlement)
    assert (await stored(harness)).started == 1
    assert (await stored(harness)).runs_left == 2


async def test_a_settlement_that_is_repeated_counts_once(harness):
    claim, point = await a_claim(harness)
    retry = a_retry(point)
    part = Settlement(occurrences=(retry,), counted=(point.member,), chains=(moved(point, 1),))
    await harness.queue.settlements.settle(claim, part)
    await harness.queue.settlements.settle(claim, part)
    assert (await stored(harness)).started == 1


async def test_a_slot_that_somebody_else_has_taken_over_is_not_counted_twice(harness):
    slow, point = await a_claim(harness, lease_seconds=0.1)
    await harness.pass_time(0.3)
    (claim,) = await harness.claim_all(worker="w2")
    settlement = Settlement(chains=(moved(point, 60),), counted=(point.member,))
    assert (await harness.queue.settlements.settle(claim, settlement)).applied == 1
    assert (await harness.queue.settlements.settle(slow, settlement)).lost
    assert (await stored(harness)).started == 1


async def test_an_edit_in_flight_does_not_take_a_count_back(harness):
    claim, point = await a_claim(harness)
    settlement = Settlement(chains=(moved(point, 60),), counted=(point.member,))
    await harness.queue.settlements.settle(claim, settlement)
    await harness.arm(rule=LIMITED, keep_chain=True, generation=2, timing_generation=1)
    assert (await stored(harness)).started == 1
    await harness.arm(rule=LIMITED, generation=3, due_in=60.0, started=0)
    assert (await stored(harness)).started == 1
    await harness.arm(rule=LIMITED, generation=4, due_in=60.0, started=2)
    assert (await stored(harness)).started == 2


async def test_a_count_ends_with_the_limit_and_begins_with_what_the_operator_knows(harness):
    claim, point = await a_claim(harness)
    settlement = Settlement(chains=(moved(point, 60),), counted=(point.member,))
    await harness.queue.settlements.settle(claim, settlement)
    await harness.arm(generation=2, due_in=60.0)
    assert (await stored(harness)).started == 0
    await harness.arm(rule=LIMITED, generation=3, due_in=60.0, started=7)
    assert (await stored(harness)).started == 7
