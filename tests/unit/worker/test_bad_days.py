"""A worker when things go wrong in the middle: nothing is lost, stuck, or said a thousand times."""

from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.runs.run import RunState
from duepoint.schedules import actions, slots
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from duepoint.worker import claimer
from tests.support.builders import a_definition, a_rule, at
from tests.support.workplace import LEASE_SECONDS, a_workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")
SLOW = actions.Action(
    target=actions.WebhookAction(url="https://hooks.example.com/x", timeout_seconds=300)
)


def every(period: str = "10s", **changes):
    return a_definition(f"@every {period}", created_us=NOON, not_before_us=NOON, **changes)


@pytest.fixture
async def place():
    return await a_workplace()


# -- the queue fails in the middle ----------------------------------------------------------------


# -- one bad point --------------------------------------------------------------------------------


async def test_a_point_that_cannot_be_judged_is_buried_and_its_neighbours_fire(place, monkeypatch):
    rule = a_rule("@every 10s", policy={"concurrency_policy": "Forbid"})  # so that its name matters
    await place.arm(every("10s", uid="bad", name="bad", rule=rule))
    for number in range(8):
        await place.arm(every("10s", uid=f"good-{number}", name=f"good-{number}"))
    for_rule = slots.for_rule

    def broken(rule, *, identity, created_us):
        if identity.endswith("/bad"):
            raise errors.InvalidExpression("no such zone")
        return for_rule(rule, identity=identity, created_us=created_us)

    monkeypatch.setattr(slots, "for_rule", broken)
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        assert len(place.target.fired) == 8
        await place.clock.advance(5 * LEASE_SECONDS)
    (letter,) = [one for shard in place.queue.shards.values() for one in shard.dead]
    assert letter.entry["name"] == "bad"
    assert letter.entry["reason"] == Reason.INTERNAL_ERROR


# -- attempts that never began ---------------------------------------------------------------------


async def test_an_attempt_that_never_began_does_not_use_up_the_only_one(place):
    once = actions.WebhookAction(
        url="https://hooks.example.com/x", retry=actions.RetryRule(max_attempts=1)
    )
    await place.arm(every("60s"), actions.Action(target=once))
    never = outcomes.Retry(
        reason=Reason.NETWORK, message="no time left", started=False, counted=False
    )
    place.target.reply(never)
    async with place.working(place.a_worker()):
        await place.clock.advance(70)
    assert [firing.attempt for firing in place.target.fired] == [1, 1]
    assert [event.state for event in await place.events()][-1] is RunState.SUCCEEDED


async def test_a_retry_that_nobody_claimed_in_time_is_given_up_and_not_delivered_late(place):
    young = actions.WebhookAction(
        url="https://hooks.example.com/x", retry=actions.RetryRule(max_age_us=60 * SECOND)
    )
    await place.arm(every("7200s"), actions.Action(target=young))
    place.target.reply(UNREACHABLE)
    async with place.working(place.a_worker()):
        await place.clock.advance(7200.05)
    await place.clock.advance(3600)
    async with place.working(place.a_worker("after-the-outage")):
        await place.clock.advance(1)
    assert len(place.target.fired) == 1
    last = (await place.events())[-1]
    assert (last.state, last.reason) == (RunState.FAILED, Reason.DEADLINE_EXCEEDED)
    (letter,) = [one for shard in place.queue.shards.values() for one in shard.dead]
    assert letter.entry["slot_us"] == str(NOON + 7200 * SECOND)


# -- under load ------------------------------------------------------------------------------------


async def test_one_slow_delivery_does_not_take_the_room_of_its_whole_batch(place):
    for number in range(20):
        await place.arm(every("10s", uid=f"uid-{number}", name=f"s-{number}"))
    await place.arm(every("10s", uid="slow", name="slow"), SLOW)
    worker = _with_room(place.a_worker(), 21)
    fire = place.target.fire

    async def slow_fire(firing):
        if firing.name == "slow":
            await place.clock.sleep(200)
        return await fire(firing)

    place.target.fire = slow_fire
    async with place.working(worker):
        await place.clock.advance(11)
        assert worker._room.in_hand.total() <= 2
        await place.clock.advance(10)
    assert len(place.target.fired) == 40


# -- clocks and logs -------------------------------------------------------------------------------


def _with_room(worker: claimer.Claimer, room: int) -> claimer.Claimer:
    worker._room._most, worker._room._part = room, 1
    return worker


# -- judged as of the first claim ------------------------------------------------------------------


async def test_workers_that_die_in_recovery_run_no_slot_that_the_policy_refuses(place):
    strict = a_rule("@every 5m", policy={"catch_up_policy": "None"})
    await place.arm(every("5m", rule=strict), SLOW)
    await place.clock.advance(3600 + 120)
    shards = sorted(place.queue.shards)
    for _ in range(2):
        answers = await place.queue.claims.claim(shards, worker="dies", lease_seconds=LEASE_SECONDS)
        assert any(answer.claim for answer in answers)
        await place.clock.advance(LEASE_SECONDS + 1)
    async with place.working(place.a_worker("heir")):
        await place.clock.advance(200)
    assert place.slots_fired() == [NOON + 3900 * SECOND]
    missed = [event for event in await place.events() if event.state is RunState.MISSED]
    assert [(event.reason, event.count) for event in missed] == [(Reason.CATCH_UP_POLICY, 12)]


async def test_a_slot_that_too_many_retries_crowd_out_is_told_as_failed(place, monkeypatch):
    monkeypatch.setattr(messages, "OPEN_RETRIES", 2)
    retry = actions.RetryRule(initial_backoff_us=3_600 * SECOND, max_backoff_us=3_600 * SECOND)
    webhook = actions.WebhookAction(url="https://hooks.example.com/x", retry=retry)
    known = await place.arm(every("10s"), actions.Action(target=webhook))
    place.target.always_reply(UNREACHABLE)
    async with place.working(place.a_worker()):
        await place.clock.advance(41)
    failed = [event for event in await place.events() if event.state is RunState.FAILED]
    assert [event.slot_us for event in failed] == [NOON + 10 * SECOND, NOON + 20 * SECOND]
    assert {event.settled_us for event in failed} == {event.slot_us for event in failed}
    letters = [one for shard in place.queue.shards.values() for one in shard.dead]
    assert [letter.entry["uid"] for letter in letters] == [known.uid] * 2
    assert {letter.entry["reason"] for letter in letters} == {Reason.NETWORK}
