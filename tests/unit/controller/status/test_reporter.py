"""What is told becomes statuses: guarded, coalesced, at a rate, and never twice the same."""

from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.delayqueue.ledger import Ledger
from duepoint.kube import errors as kube_errors
from duepoint.runs.run import RunEvent, RunState
from tests.support.builders import at
from tests.unit.controller.world import NAMESPACE, World

S = 1_000_000


def event(made, slot_us, state=RunState.SUCCEEDED, **changes) -> RunEvent:
    """An event about a slot of this Schedule, told half a second after it."""
    metadata = made["metadata"]
    finished = slot_us + S // 2 if state in (RunState.SUCCEEDED, RunState.FAILED) else 0
    values = {
        "uid": metadata["uid"],
        "namespace": NAMESPACE,
        "name": metadata["name"],
        "generation": 1,
        "slot_us": slot_us,
        "trigger": "Schedule",
        "state": state,
        "reason": "Succeeded" if state is RunState.SUCCEEDED else "Rejected",
        "at_us": slot_us,
        "started_us": slot_us,
        "finished_us": finished,
        "settled_us": slot_us,
    }
    return RunEvent(**{**values, **changes})


FIRST = at("2026-03-01 12:05:00")


async def test_the_first_failure_of_a_schedule_of_every_second_shows_within_two_seconds():
    async with World().leader() as world:
        made = await world.apply(schedule="@every 1s")
        uid = made["metadata"]["uid"]
        first_us = at("2026-03-01 12:00:00")
        for second in range(32):
            state = RunState.SUCCEEDED if second < 30 else RunState.FAILED
            told = event(made, first_us + (second + 1) * S, state)
            await world.clock.advance(1)
            await world.tell(uid, told, read=False)
        assert world.status()["lastRun"]["outcome"] == "Failed"


async def test_many_statuses_are_written_at_the_rate_and_in_their_newest_state():
    async with World(writes_per_second=5).leader() as world:
        made = [await world.apply(f"s{number}") for number in range(30)]
        await world.clock.advance(60)
        writes = world.status_writes()
        for slot in (FIRST, FIRST + 300 * S):
            for one in made:
                await world.tell(one["metadata"]["uid"], event(one, slot), read=False)
        await world.clock.advance(1.5)
        assert world.status_writes() - writes <= 5 + 8
        await world.clock.advance(10)
        assert world.status_writes() - writes <= 30 + 5
        assert all(world.status(f"s{n}")["runs"]["started"] == 2 for n in range(30))


async def test_throttling_holds_all_writes_for_as_long_as_was_asked():
    async with World().leader() as world:
        world.api.fail_next(
            kube_errors.Throttled("slow", status=429, sent=False, retry_after_seconds=20.0),
            verb="PATCH",
        )
        await world.apply("one")
        writes = world.status_writes()
        await world.apply("two")
        await world.clock.advance(19)
        assert world.status_writes() == writes
        await world.clock.advance(25)
        assert world.ready("one") == world.ready("two") == ("True", "Armed")


# -- the streams -------------------------------------------------------------------------------


async def recorded(world: World) -> bool:
    return bool(await world.queue.ledger().records())


async def test_a_run_counts_once_though_its_leader_goes_before_the_status_shows_it():
    world = World()
    async with world.leader():
        made = await world.apply()
        await world.clock.advance(310)
        for _ in range(3):
            world.api.fail_next(kube_errors.Unavailable("503"), verb="PATCH")
        await world.tell(made["metadata"]["uid"], event(made, FIRST))
        await world.clock.advance(0.3)
        assert not any(shard.outcomes for shard in world.queue.shards.values())
        assert await recorded(world)
    assert world.status()["runs"]["started"] == 0
    async with world.leader(epoch=2):
        await world.clock.advance(10)
        assert world.status()["runs"]["started"] == 1
        assert not await recorded(world)


async def test_an_edit_says_why_it_waits_while_an_outcome_is_counted_but_not_stored(monkeypatch):
    world = World()

    async def store(*_, **__):
        world.queue.available = False
        raise errors.QueueUnavailable("no answer")

    async with world.leader():
        made = await world.apply()
        await world.clock.advance(310)
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "store", store)
            await world.tell(made["metadata"]["uid"], event(made, FIRST))
        await world.apply(schedule="*/10 * * * *")
        await world.clock.advance(1)
        assert world.condition("Reconciling")["reason"] == "QueueUnavailable"
        assert world.status()["observedGeneration"] == 2
        assert world.status()["runs"]["started"] == 0
        world.queue.available = True
        await world.clock.advance(60)
        assert world.ready() == ("True", "Armed")
        assert world.status()["runs"]["started"] == 1


@pytest.mark.parametrize(
    "edit", [{"schedule": "*/10 * * * *"}, {"suspend": True}], ids=["timing", "suspension"]
)
async def test_an_edit_that_is_seen_before_the_outcomes_of_earlier_slots_hides_no_run(edit):
    """Its term ended before it had read the outcome, which stands below the watermark by then."""
    world = World()
    async with world.leader():
        made = await world.apply()
    await world.clock.advance(310)
    async with world.leader(epoch=2):
        await world.apply(**edit)
        assert world.status()["settledThrough"] > "2026-03-01T12:05:00Z"
    await world.tell(made["metadata"]["uid"], event(made, FIRST))
    async with world.leader(epoch=3):
        await world.clock.advance(5)
        assert world.status()["runs"]["started"] == world.status()["runs"]["succeeded"] == 1


# -- the worst that is true ---------------------------------------------------------------------

REFUSED = {"reason": "Network", "message": "127.0.0.1: cannot be reached: Connection refused"}


def message(world):
    return world.condition("Ready")["message"]


@pytest.mark.parametrize("shown_after", range(1, 8))
async def test_no_run_is_lost_to_a_former_leaders_status_that_arrives_late(shown_after):
    """It lands after the new leader has listed."""
    world, begin = World(), at("2026-03-01 12:00:00")
    async with world.leader():
        made = await world.apply(schedule="@every 1s")
        uid = made["metadata"]["uid"]
        await world.clock.advance(10)
        for number in range(1, 4):
            await world.tell(uid, event(made, begin + number * S))
        await world.clock.advance(10)
        before = world.status()
        assert before["runs"]["started"] == 3
        for _ in range(9):
            world.api.fail_next(kube_errors.Unavailable("503"), verb="PATCH")
        for number in range(4, 9):
            await world.tell(uid, event(made, begin + number * S))
    assert world.status()["runs"]["started"] == 3
    async with world.leader(epoch=2):
        world.watches = False
        newer = {**before, "settledThrough": "2026-03-01T12:00:08Z"}
        newer["runs"] = {**before["runs"], "started": 8, "succeeded": 8}
        stored = world.object()
        world.api.put(("schedules", NAMESPACE, "nightly"), stored | {"status": newer})
        await world.clock.advance(3)
        for number in range(9, 16):
            if number == 8 + shown_after:
                await world.resync.compare()
                world.watches = True
            await world.tell(uid, event(made, begin + number * S), read=False)
            await world.clock.advance(1)
        await world.clock.advance(30)
        assert world.status()["runs"]["started"] == 15
        assert not await recorded(world)
