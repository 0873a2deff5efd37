"""Large Schedules: few in hand at a time, none forgotten, and no other namespace waits for them."""

from __future__ import annotations

import asyncio
import itertools

from duepoint.controller.workqueue import WorkQueue
from duepoint.schedules.definition import State
from tests.fakes.fakeclock import FakeClock
from tests.unit.controller.world import World


def a_template(number: int, size: int = 200_000) -> dict:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    note = {"note": f"{number}" * (size // len(str(number)))}
    return {"spec": {"template": {"metadata": {"annotations": note}, "spec": pod}}}


async def test_few_large_objects_are_in_hand_at_a_time_and_all_of_them_are_applied(monkeypatch):
    world = World()
    for number in range(12):
        await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
    await world.apply_job("gone", jobTemplate=a_template(99))
    most = now = 0
    async with world.leader():
        await world.delete("gone")
        reconcile = world.reconciler.reconcile

        async def counting(task):
            nonlocal most, now
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            try:
                return await reconcile(task)
            finally:
                now -= 1

        monkeypatch.setattr(world.reconciler, "reconcile", counting)
        for number in range(12):
            await world.apply_job(f"large-{number}", jobTemplate=a_template(number + 100))
        await world.clock.advance(1)
        assert {held.state for held in world.definitions()} == {State.ARMED}
        assert len(world.definitions()) == 12
        assert most <= 4


async def test_statuses_of_large_objects_are_written_one_by_one_with_rests_and_delay_no_other(
    monkeypatch,
):
    world, began = World(), {}
    async with world.leader():
        write = world.term.write_status

        async def slow(seen, fields, *plural):
            began.setdefault(seen.name, world.clock.monotonic())
            await world.clock.sleep(0.5)
            return await write(seen, fields, *plural)

        monkeypatch.setattr(world.term, "write_status", slow)
        for number in range(4):
            await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
        for number in range(4):
            await world.apply_job(f"small-{number}")
        applied_at = world.clock.monotonic()
        await world.clock.advance(10)
    large = sorted(at for name, at in began.items() if name.startswith("large"))
    small = [at - applied_at for name, at in began.items() if name.startswith("small")]
    assert [round(after - at, 3) for at, after in itertools.pairwise(large)] == [1.5] * 3
    assert len(small) == 4
    assert max(small) <= 0.5  # two at a time


async def test_lanes_take_turns():
    clock, seen = FakeClock(), []

    async def handle(item: str) -> None:
        seen.append(item)

    queue: WorkQueue[str] = WorkQueue(clock, "not done", lane=lambda item: item[0])
    for number in range(10):
        queue.put(f"a{number}", f"a{number}")
    queue.put("b0", "b0")
    running = asyncio.create_task(queue.run(handle, 1))
    await clock.settle()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert seen.index("b0") == 1
    assert len(seen) == 11
