"""A receiver that is gone or in trouble is seen on the Schedule, and told once."""

from __future__ import annotations

from duepoint.runs.run import RunState
from tests.unit.controller.status.test_openslots import S, put_off
from tests.unit.controller.status.test_reporter import FIRST, event
from tests.unit.controller.world import World

GONE = "the receiver said that it is gone (410)"
WAITS = "https://hooks.example.com:443: 10 failures in a row, the last: Connection refused"


def gone(made, slot_us=FIRST, state=RunState.FAILED, **changes):
    return event(made, slot_us, state, reason="EndpointGone", message=GONE, **changes)


def waits(made, slot_us=FIRST, **changes):
    return put_off(made, slot_us, reason="CircuitOpen", message=WAITS, **changes)


def told(world, reason):
    return [one for one in world.news if one.reason == reason]


async def test_a_receiver_that_is_gone_is_a_condition_until_the_schedule_is_edited():
    async with World().leader() as world:
        made = await world.apply()
        uid = made["metadata"]["uid"]
        await world.clock.advance(301)
        await world.tell(uid, gone(made, http_status=410))
        await world.clock.advance(5)
        shown = world.condition("EndpointGone")
        assert (shown["status"], shown["reason"], shown["message"]) == (
            "True",
            "EndpointGone",
            GONE,
        )
        assert world.condition("LastRunSucceeded")["status"] == "False"
        assert world.ready() == ("True", "Armed")
        await world.clock.advance(300)
        await world.tell(uid, gone(made, FIRST + 300 * S, RunState.SKIPPED))
        await world.clock.advance(5)
        assert world.status()["runs"]["skipped"] == 1
        assert world.condition("EndpointGone") == shown
        (news,) = told(world, "EndpointGone")
        assert (news.warning, news.note) == (True, GONE)
        await world.apply(webhook={"url": "https://hooks.example.com/new"})
        await world.clock.advance(5)
        assert world.condition("EndpointGone") is None


async def test_a_new_leader_keeps_that_it_is_gone_and_ends_it_after_a_run_by_hand():
    world = World()
    async with world.leader():
        made = await world.apply()
        uid = made["metadata"]["uid"]
        await world.clock.advance(301)
        await world.tell(uid, gone(made))
        await world.clock.advance(5)
        shown = world.condition("EndpointGone")
    async with world.leader(epoch=2):
        await world.clock.advance(60)
        assert world.condition("EndpointGone") == shown
        by_hand = event(made, FIRST + 100 * S, trigger="Manual", settled_us=0)
        await world.tell(uid, by_hand)
        await world.clock.advance(5)
        assert world.condition("EndpointGone") is None


async def test_deliveries_that_wait_for_a_circuit_are_a_condition_until_one_arrives():
    async with World().leader() as world:
        made = await world.apply()
        uid = made["metadata"]["uid"]
        await world.clock.advance(301)
        await world.tell(uid, waits(made))
        await world.clock.advance(5)
        shown = world.condition("CircuitOpen")
        assert (shown["status"], shown["reason"], shown["message"]) == (
            "True",
            "CircuitOpen",
            WAITS,
        )
        assert world.ready() == ("True", "Armed")
        failed = event(made, FIRST, RunState.RUNNING, reason="Network", at_us=FIRST + 20 * S)
        await world.tell(uid, failed)
        await world.clock.advance(30)
        assert world.condition("CircuitOpen") == shown
        await world.tell(uid, event(made, FIRST, at_us=FIRST + 40 * S))
        await world.clock.advance(5)
        assert world.condition("CircuitOpen") is None


# -- the fold -----------------------------------------------------------------------------------
