"""An emptied queue is filled many at a time, and each object ends as it would have alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from duepoint import errors
from duepoint.controller.workqueue import Batches, WorkQueue
from duepoint.delayqueue import messages
from tests.fakes.fakeclock import FakeClock
from tests.unit.controller.world import World, seen_of


def _counted(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many schedules were armed together, and alone."""
    counts = {"together": 0, "alone": 0}
    upsert = world.queue.writer.upsert

    async def counted(wanted, epoch):
        works = asyncio.current_task().get_coro().__qualname__
        kind = "together" if works == "WorkQueue._work_batches" else "alone"
        counts[kind] += len(wanted)
        return await upsert(wanted, epoch)

    monkeypatch.setattr(world.queue.writer, "upsert", counted)
    return counts


async def test_an_emptied_queue_is_filled_together(monkeypatch):
    world = World()
    async with world.leader():
        for number in range(40):
            await world.apply(f"s{number}")
        held = world.definitions()
        writes = world.status_writes()
        await world.lose_redis()
        counts = _counted(world, monkeypatch)
        await world.resync.run()
        await world.clock.advance(1)  # a crowd is waited for
        assert counts == {"together": 40, "alone": 0}
        assert {one.identity: one.rule for one in world.definitions()} == {
            one.identity: one.rule for one in held
        }
        await world.clock.advance(10)
        assert world.status_writes() == writes


async def test_wrong_and_suspended_ones_among_them_end_as_they_do_alone(monkeypatch):
    world = World()
    async with world.leader():
        for number in range(5):
            await world.apply(f"s{number}")
        await world.apply("wrong", schedule="61 * * * *")
        await world.apply("asleep", suspend=True)
        await world.apply_job("job")
        said = {name: world.ready(name) for name in ("s0", "wrong", "asleep", "job")}
        await world.lose_redis()
        counts = _counted(world, monkeypatch)
        await world.resync.run()
        await world.clock.advance(10)
        assert {name: world.ready(name) for name in said} == said
        assert sorted(one.name for one in world.definitions()) == sorted(
            ["asleep", "job", *(f"s{n}" for n in range(5))]
        )
        assert counts["together"] >= 7


async def test_of_an_emptied_queue_only_what_the_statuses_do_not_say_is_reported(monkeypatch):
    world = World()
    async with world.leader():
        for number in range(10):
            await world.apply(f"s{number}")
        await world.apply("counted", maxRuns=3)
        await world.clock.advance(10)
        reported: list[str] = []
        report = world.reporter.report

        def noted(uid, one):
            reported.append(one.definition.name)
            report(uid, one)

        monkeypatch.setattr(world.reporter, "report", noted)
        await world.lose_redis()
        await world.resync.run()
        await world.clock.advance(1)
        assert len(world.definitions()) == 11
        assert reported == ["counted"]


async def test_while_redis_is_away_nothing_is_lost(monkeypatch):
    world = World()
    async with world.leader():
        for number in range(30):
            await world.apply(f"s{number}")
        await world.lose_redis()
        upsert = world.queue.writer.upsert
        left = [3]

        async def failing(wanted, epoch):
            if left[0]:
                left[0] -= 1
                raise errors.QueueUnavailable("away")
            return await upsert(wanted, epoch)

        monkeypatch.setattr(world.queue.writer, "upsert", failing)
        await world.resync.run()
        await world.clock.advance(60)
        assert len(world.definitions()) == 30


async def test_what_the_queue_holds_after_all_is_looked_at_alone(monkeypatch):
    world = World()
    async with world.leader():
        for number in range(4):
            await world.apply(f"s{number}")
        held = {one.uid: one for one in world.definitions()}
        await world.lose_redis()

        upsert = world.queue.writer.upsert

        async def unchanged(wanted, epoch):
            await upsert(wanted, epoch)
            return [messages.Armed.UNCHANGED] * len(wanted)

        monkeypatch.setattr(world.queue.writer, "upsert", unchanged)
        await world.resync.run()
        await world.clock.settle()
        assert {one.uid for one in world.definitions()} == held.keys()


async def _worked_off(puts: Sequence[tuple[str, int]], most: int) -> list[list[int]]:
    """What one worker each was handed of these keys and items; below ten they fit together."""
    seen: list[list[int]] = []

    async def alone(item: int) -> None:
        seen.append([item])

    async def many(items: list[int]) -> list[float | None]:
        seen.append(items)
        return [None] * len(items)

    queue: WorkQueue[int] = WorkQueue(FakeClock(), "not done", lambda item: item < 10)
    for key, item in puts:
        queue.put(key, item)
    running = asyncio.create_task(queue.run(alone, 1, Batches(many, most=most, workers=1)))
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert len(queue) == 0
    return seen


async def test_items_that_fit_are_handed_over_together_and_each_kind_in_order():
    puts = [(str(number), number) for number in (1, 2, 30, 3, 4, 5, 40)]
    seen = await _worked_off(puts, most=2)
    assert [items for items in seen if items[0] < 10] == [[1, 2], [3, 4], [5]]
    assert [items for items in seen if items[0] > 10] == [[30], [40]]


async def test_what_does_not_fit_any_more_is_worked_on_alone():
    seen = await _worked_off([("1", 1), ("2", 2), ("3", 3), ("2", 20)], most=5)
    assert sorted(seen) == [[1, 3], [20]]


async def test_one_of_many_may_ask_for_another_try():
    clock = FakeClock()
    seen: list[list[int]] = []

    async def many(items: list[int]) -> list[float | None]:
        seen.append(items)
        return [1.0 if item == 2 and len(seen) == 1 else None for item in items]

    async def alone(item: int) -> None:
        seen.append([item])

    queue: WorkQueue[int] = WorkQueue(clock, "not done", lambda item: True)
    for number in (1, 2, 3):
        queue.put(str(number), number)
    running = asyncio.create_task(queue.run(alone, 1, Batches(many, most=10, workers=1)))
    await clock.settle()
    await clock.advance(2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert seen == [[1, 2, 3], [2]]


async def test_what_is_new_in_the_watch_is_armed_together_jobs_of_a_known_template_too(monkeypatch):
    world = World()
    async with world.leader():
        await world.apply_job("first")
        counts = _counted(world, monkeypatch)
        for number in range(20):
            await world.apply(f"s{number}")
            await world.apply_job(f"job{number}")
        assert counts == {"together": 40, "alone": 0}
        assert {world.ready(f"job{number}")[0] for number in range(20)} == {"True"}
        await world.apply("s0", schedule="*/7 * * * *")  # an edit needs a look of its own
        assert counts == {"together": 40, "alone": 1}


async def _gathering(put: list[tuple[float, int]]) -> tuple[list[int], FakeClock]:
    """How many were worked on at a time, of so many put so many seconds after one another."""
    clock, seen = FakeClock(), []

    async def many(items: list[int]) -> list[float | None]:
        seen.append(len(items))
        return [None] * len(items)

    queue: WorkQueue[int] = WorkQueue(clock, "not done", lambda _: True)
    running = asyncio.create_task(queue.run(many, 1, Batches(many, most=500, workers=3)))
    await clock.settle()
    number = 0
    for wait, count in put:
        await clock.advance(wait)
        for _ in range(count):
            queue.put(str(number), number)
            number += 1
        await clock.settle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return seen, clock


async def test_one_that_comes_alone_is_worked_on_at_once():
    seen, _ = await _gathering([(0.0, 1), (0.0, 1), (0.1, 2)])
    assert sum(seen) == 4


async def test_a_crowd_waits_for_those_behind_it_and_not_for_long():
    drip = [(0.1, 40)] * 30
    seen, _ = await _gathering([*drip, (0.2, 0)])
    assert sum(seen) == 1_200
    assert len(seen) <= 4
    seen, _ = await _gathering([(0.0, 40), (0.2, 0)])
    assert seen == [40]
    seen, _ = await _gathering([(0.0, 1_200)])
    assert seen[:2] == [500, 500]


async def test_what_was_taken_for_new_and_is_not_is_looked_at_alone(monkeypatch):
    world = World()
    async with world.leader():
        first = await world.apply("armed")
    armed = world.definitions()
    # A crash between arming and status: the watch shows an object that nobody has answered.
    first.pop("status", None)
    async with world.leader(epoch=2):
        world.observations._applied.clear()
        seen = seen_of(first)
        world.observations.offer(seen)
        await world.clock.settle()
        assert world.definitions() == armed
        assert world.ready("armed") == ("True", "Armed")


async def test_statuses_that_another_installation_wrote_are_written_anew(monkeypatch):
    world = World(managed_by="a/a")
    async with world.leader():
        await world.apply("one")
        assert world.status("one")["managedBy"] == "a/a"
    world.queue.flush()
    world.managed_by = "b/b"
    async with world.leader(epoch=2):
        await world.clock.advance(60)
        assert world.status("one")["managedBy"] == "b/b"


async def test_what_is_armed_anew_is_known_as_it_is_armed():
    world = World()
    async with world.leader():
        uid = (await world.apply("one"))["metadata"]["uid"]
        await world.apply("one", concurrencyPolicy="Forbid")  # another generation, the same timing
        await world.clock.advance(10)
        before = await world.states.definition(uid)
        await world.lose_redis()
        await world.resync.run()
        await world.clock.settle()
        after = await world.states.definition(uid)
        assert (before.timing_generation, after.timing_generation) == (1, 2)
        assert after == world.definition(uid)
