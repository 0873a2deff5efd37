"""A worker's life in virtual time: what fires when, how often, and what is left behind."""

from __future__ import annotations

import weakref

import pytest
from structlog.testing import capture_logs

from duepoint import telemetry
from duepoint.runs.run import RunState
from duepoint.schedules import actions, definition
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from duepoint.worker import firing, settler
from tests.support.builders import a_definition, at
from tests.support.workplace import a_workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")


def every(period: str = "10s", **changes) -> definition.Definition:
    return a_definition(f"@every {period}", created_us=NOON, not_before_us=NOON, **changes)


@pytest.fixture
async def place():
    return await a_workplace()


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


async def test_a_claim_that_is_settled_is_gone_without_a_garbage_collection(place, monkeypatch):
    settlers = []

    class Noted(settler.Settler):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            settlers.append(weakref.ref(self))

    monkeypatch.setattr(firing, "Settler", Noted)
    await place.arm(every("1s"))
    async with place.working(place.a_worker()):
        await place.clock.advance(3.5)
    assert len(settlers) >= 3
    assert [one() for one in settlers] == [None] * len(settlers)


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
