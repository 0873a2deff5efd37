"""Large Schedules: few in hand at a time, bounded bytes while they wait, none forgotten."""

from __future__ import annotations

import asyncio

from duepoint.controller.schedules import largeobjects
from duepoint.schedules.definition import State
from tests.unit.controller.world import World


def a_template(number: int, size: int = 200_000) -> dict:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    note = {"note": f"{number}" * (size // len(str(number)))}
    return {"spec": {"template": {"metadata": {"annotations": note}, "spec": pod}}}


def test_a_namespace_full_of_large_objects_leaves_another_one_its_turn():
    large = largeobjects.LargeObjects()
    assert [large.begin("hostile", 0.0) > 0 for _ in range(10)] == [False] * 3 + [True] * 7
    assert large.begin("quiet", 0.0) == 0.0
    large.end("hostile", 0, 0.0, 0.0)
    assert large.begin("hostile", 0.0) == 0.0


async def test_large_objects_are_applied_one_after_the_other_and_all_of_them(monkeypatch):
    monkeypatch.setattr(largeobjects, "_MOST_WAITING_BYTES", 500_000)  # two of them, or three
    world = World()
    for number in range(12):
        await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
    most = now = 0
    async with world.leader():
        apply = world.reconcile_queue._apply

        async def counting(tasks, **kind):
            nonlocal most, now
            now += len(tasks)
            most = max(most, now)
            await asyncio.sleep(0)
            try:
                return await apply(tasks, **kind)
            finally:
                now -= len(tasks)

        monkeypatch.setattr(world.reconcile_queue, "_apply", counting)
        for _ in range(100):
            await world.clock.advance(0.2)
        assert {held.state for held in world.definitions()} == {State.ARMED}
        assert len(world.definitions()) == 12
        assert most <= 4
        assert world.observations.large._waiting_bytes == 0
        assert not world.observations.large._sizes
