"""A worker's life in virtual time: what fires when, how often, and what is left behind."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from structlog.testing import capture_logs

from duepoint import telemetry
from duepoint.delayqueue import messages
from duepoint.runs import outcome as outcomes
from duepoint.runs.run import RunState
from duepoint.schedules import actions, definition
from duepoint.schedules.conditions import Reason
from tests.support.builders import a_definition, a_rule, at
from tests.support.workplace import EPOCH, LEASE_SECONDS, a_workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")


def every(period: str = "10s", **changes) -> definition.Definition:
    return a_definition(f"@every {period}", created_us=NOON, not_before_us=NOON, **changes)


@pytest.fixture
async def place():
    return await a_workplace()


async def test_each_slot_fires_once_and_at_its_time(place):
    await place.arm(every("10s"))
    async with place.working(place.a_worker()):
        await place.clock.advance(35)
    assert place.slots_fired() == [NOON + n * 10 * SECOND for n in (1, 2, 3)]
    events = await place.events()
    assert [event.state for event in events] == [RunState.SUCCEEDED] * 3
    assert [event.started_us for event in events] == place.slots_fired()


async def test_a_schedule_armed_while_all_sleep_wakes_them(place):
    async with place.working(place.a_worker()):
        await place.clock.advance(5)
        await place.arm(every("10s"))
        await place.clock.advance(5.001)
    assert place.slots_fired() == [NOON + 10 * SECOND]


async def test_a_worker_that_rests_for_hours_fires_what_comes_then(place):
    place.clock.timer_step_seconds = 0.0015  # as the event loop's timers have
    await place.arm(every("3h"))
    async with place.working(place.a_worker()):
        for _ in range(3):
            await place.clock.advance(3 * 3600 - 0.003)
            for _ in range(12):
                await place.clock.advance(0.0005)
    assert place.slots_fired() == [NOON + n * 3 * 3600 * SECOND for n in (1, 2, 3)]


async def test_a_slow_delivery_delays_no_later_slot(place):
    await place.arm(every("1s"))
    place.target.hold()
    async with place.working(place.a_worker()):
        await place.clock.advance(4.5)
        assert place.slots_fired() == [NOON + n * SECOND for n in (1, 2, 3, 4)]
        place.target.let_go()
        await place.clock.advance(0.1)
    events = await place.events()
    ended = [event.slot_us for event in events if event.state is RunState.SUCCEEDED]
    assert ended == [NOON + n * SECOND for n in (1, 2, 3, 4)]


async def test_a_failed_delivery_is_tried_again_while_the_chain_goes_on(place):
    await place.arm(every("10s"))
    place.target.reply(UNREACHABLE)
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    first, second = NOON + 10 * SECOND, NOON + 20 * SECOND
    assert place.slots_fired() == [first, first, second]
    attempts = [firing.attempt for firing in place.target.fired]
    assert attempts == [1, 2, 1]


def results_of(known, result):
    """Webhooks of the definition's namespace that ended so, as metrics count them."""
    labels = {"namespace": known.namespace, "target": "webhook", "result": result}
    return telemetry.registry.get_sample_value("duepoint_run_results_total", labels) or 0


async def test_the_last_failure_leaves_a_dead_letter_with_everything_needed(place):
    webhook = actions.WebhookAction(
        url="https://hooks.example.com/x", retry=actions.RetryRule(max_attempts=2)
    )
    known = await place.arm(
        a_definition("@at 2026-03-01T12:00:10Z", created_us=NOON, not_before_us=NOON),
        actions.Action(target=webhook),
    )
    place.target.always_reply(UNREACHABLE)
    failed = results_of(known, "Failed")
    with capture_logs() as lines:
        async with place.working(place.a_worker()):
            await place.clock.advance(60)
    assert {line.get("slot") for line in lines if line["event"] == "attempt failed"} == {
        "2026-03-01T12:00:10Z"
    }
    assert results_of(known, "Failed") == failed + 1
    (letter,) = [one for shard in place.queue.shards.values() for one in shard.dead]
    assert letter.entry["uid"] == known.uid
    assert letter.entry["attempts"] == "2"
    assert (await place.events())[-1].state is RunState.FAILED


async def test_a_bug_in_a_target_is_one_slots_trouble(place):
    await place.arm(every("10s", uid="bad", name="bad"))
    await place.arm(every("10s", uid="good", name="good"))

    def reply(firing):
        if firing.name == "bad":
            raise RuntimeError("a bug")
        return outcomes.Delivered(accepted_us=place.clock.now_us())

    place.target.always_reply(reply)
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
    assert {event.name: event.reason for event in await place.events()} == {
        "bad": Reason.INTERNAL_ERROR,
        "good": Reason.SUCCEEDED,
    }


async def test_a_killed_worker_loses_nothing_and_its_slot_is_taken_over_at_lease_end(place):
    await place.arm(every("60s"))
    place.target.hold()
    async with place.working(place.a_worker("doomed")) as (task,):
        await place.clock.advance(60)
        assert len(place.target.fired) == 1
        place.queue.available = False  # killed: not even a goodbye reaches Redis
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        place.queue.available = True
    place.target.let_go()
    async with place.working(place.a_worker("heir")):
        await place.clock.advance(LEASE_SECONDS + 0.5)
    assert place.slots_fired() == [NOON + 60 * SECOND] * 2
    assert [event.state for event in await place.events()] == [RunState.SUCCEEDED]


async def test_a_long_delivery_keeps_its_claim(place):
    webhook = actions.WebhookAction(url="https://hooks.example.com/x", timeout_seconds=60)
    await place.arm(every("120s"), actions.Action(target=webhook))
    place.target.hold()
    async with place.working(place.a_worker("slow"), place.a_worker("idle")):
        await place.clock.advance(120 + 3 * LEASE_SECONDS)
        place.target.let_go()
        await place.clock.advance(1)
    assert place.slots_fired() == [NOON + 120 * SECOND]
    states = [event.state for event in await place.events()]
    assert states == [RunState.RUNNING, RunState.SUCCEEDED]


async def test_draining_finishes_what_runs_and_claims_nothing_more(place):
    await place.arm(every("10s"))
    place.target.hold()
    worker = place.a_worker()
    async with place.working(worker) as (task,):
        await place.clock.advance(10)
        worker.drain()
        await place.clock.advance(1)
        assert not task.done()
        place.target.let_go()
        await place.clock.advance(0.1)
        assert task.done()
        await place.clock.advance(30)
    assert place.slots_fired() == [NOON + 10 * SECOND]
    assert (await place.events())[0].state is RunState.SUCCEEDED


async def test_what_cannot_finish_in_the_grace_period_is_given_back_at_once(place):
    webhook = actions.WebhookAction(url="https://hooks.example.com/x", timeout_seconds=200)
    await place.arm(every("300s"), actions.Action(target=webhook))
    place.target.hold()
    leaving = place.a_worker("leaving")
    async with place.working(leaving) as (task,):
        await place.clock.advance(300)
        leaving.drain()
        await place.clock.advance(20)
        assert task.done()
    place.target.let_go()
    async with place.working(place.a_worker("heir")):
        await place.clock.advance(0.01)
    assert place.slots_fired() == [NOON + 300 * SECOND] * 2


async def test_a_delete_between_claim_and_fire_is_obeyed(place):
    known = await place.arm(every("10s"))
    async with place.working(place.a_worker()):
        await place.clock.advance(9)
        await place.queue.writer.remove(known.id, known.uid, known.namespace, EPOCH)
        await place.clock.advance(30)
    assert place.slots_fired() == []


async def test_an_edit_is_used_by_the_very_next_attempt(place):
    known = await place.arm(every("10s"))
    edited = actions.Action(target=actions.WebhookAction(url="https://new.example.com/"))
    async with place.working(place.a_worker()):
        await place.clock.advance(15)
        blob = actions.encode(edited)
        newer = msgspec.structs.replace(
            known, generation=2, target=place.queue.signed_blobs.digest(known.namespace, blob)
        )
        arming = messages.Arming(definition=newer, due_us=None, keep_chain=True)
        await place.queue.writer.upsert([(arming, blob)], EPOCH)
        await place.clock.advance(6)
    urls = [firing.action.target.url for firing in place.target.fired]
    assert urls == ["https://hooks.example.com/x", "https://new.example.com/"]
    assert [firing.generation for firing in place.target.fired] == [1, 2]


async def test_an_outage_of_redis_is_waited_out_and_then_caught_up(place):
    await place.arm(every("10s", rule=a_rule("@every 10s", policy={"catch_up": "All"})))
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.queue.available = False
        await place.clock.advance(30)
        assert place.health.troubles()
        place.queue.available = True
        await place.clock.advance(5)
        assert not place.health.troubles()
    assert sorted(set(place.slots_fired())) == [NOON + n * 10 * SECOND for n in (1, 2, 3, 4)]


async def test_a_completed_one_shot_leaves_a_completed_definition_and_no_point(place):
    known = await place.arm(
        a_definition("@at 2026-03-01T12:00:10Z", created_us=NOON, not_before_us=NOON)
    )
    async with place.working(place.a_worker()):
        await place.clock.advance(20)
    assert (await place.definition(known)).state is definition.State.COMPLETED
    assert all(not shard.members for shard in place.queue.shards.values())
    assert (await place.events())[0].completed
