"""A Schedule whose runs never succeed is Failing: since when, for what reason, told once."""

from __future__ import annotations

from duepoint import telemetry
from duepoint.runs.run import RunState
from tests.unit.controller.status.test_openslots import S
from tests.unit.controller.status.test_reporter import FIRST, event
from tests.unit.controller.world import World

WHY = "127.0.0.1: cannot be reached: Connection refused"


def failed(made, attempts, slot_us=FIRST, *, late=0, **changes):
    """An attempt has failed, and there will be another one."""
    begun = {"started_us": slot_us, "at_us": slot_us + (attempts + late) * S}
    told = {"reason": "Network", "message": WHY, "attempts": attempts}
    return event(made, slot_us, RunState.RUNNING, **{**begun, **told, **changes})


def succeeded(made, slot_us, **changes):
    done = {"started_us": slot_us, "at_us": slot_us + S, "finished_us": slot_us + S}
    return event(made, slot_us, RunState.SUCCEEDED, reason="Succeeded", **{**done, **changes})


def told(world):
    return [one.reason for one in world.news if one.reason in ("RunFailing", "RunRecovered")]


async def gauge():
    """Failing Schedules of all namespaces."""
    for refresh in tuple(telemetry.before_scrape):
        await refresh()
    found = telemetry.schedules_failing.collect()
    return sum(sample.value for family in found for sample in family.samples)


async def test_a_receiver_that_is_not_there_is_failing_from_the_second_attempt_until_a_success():
    async with World().leader() as world:
        made = await world.apply()
        uid = made["metadata"]["uid"]
        await world.clock.advance(301)
        await world.tell(uid, failed(made, 1))
        await world.clock.advance(5)
        assert world.condition("Failing") is None
        assert (told(world), await gauge()) == ([], 0)

        await world.tell(uid, failed(made, 2))
        await world.clock.advance(5)
        shown = world.condition("Failing")
        assert (shown["status"], shown["reason"], shown["message"]) == ("True", "Network", WHY)
        assert world.ready() == ("True", "Armed")

        for number in range(1, 20):  # longer than the status keeps slots
            await world.clock.advance(300)
            slot_us = FIRST + number * 300 * S
            await world.tell(uid, failed(made, 1, slot_us), failed(made, 2, slot_us))
        await world.clock.advance(5)
        since = world.condition("Failing")["lastTransitionTime"]
        assert since == shown["lastTransitionTime"]
        assert (told(world), await gauge()) == (["RunFailing"], 1)

        await world.clock.advance(300)
        await world.tell(uid, succeeded(made, FIRST + 20 * 300 * S))
        await world.clock.advance(5)
        assert world.condition("Failing") is None
        assert (told(world), await gauge()) == (["RunFailing", "RunRecovered"], 0)


async def test_a_new_leader_keeps_since_when_it_fails_and_tells_it_no_second_time():
    world = World()
    async with world.leader():
        made = await world.apply()
        uid = made["metadata"]["uid"]
        await world.clock.advance(301)
        await world.tell(uid, failed(made, 2))
        await world.clock.advance(5)
        shown = world.condition("Failing")
    await world.clock.advance(600)
    async with world.leader():
        await world.tell(uid, failed(made, 3))
        await world.clock.advance(5)
        after = world.condition("Failing")
        assert after["lastTransitionTime"] == shown["lastTransitionTime"]
        assert told(world) == ["RunFailing"]
        await world.tell(uid, succeeded(made, FIRST + 300 * S))
        await world.clock.advance(5)
        assert world.condition("Failing") is None
        assert told(world) == ["RunFailing", "RunRecovered"]
