"""Large Schedules: few in hand at a time, bounded bytes while they wait, none forgotten."""

from __future__ import annotations

import asyncio
import heapq

from duepoint.controller.schedules import largeobjects
from duepoint.schedules.definition import State
from tests.unit.controller.world import World

MIB = 2**20


def a_template(number: int, size: int = 200_000) -> dict:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}
    note = {"note": f"{number}" * (size // len(str(number)))}
    return {"spec": {"template": {"metadata": {"annotations": note}, "spec": pod}}}


def test_so_much_may_wait_and_the_rest_waits_by_name():
    large = largeobjects.LargeObjects()
    kept = [large.may_wait(f"uid-{number}", MIB) for number in range(300)]
    assert kept.count(True) == 8
    assert large.may_wait("small", 1000)
    large.forget("uid-0")
    assert large.may_wait("uid-299", MIB)
    assert large.may_wait("uid-299", MIB)  # counted once
    assert not large.may_wait("uid-298", MIB)


def test_a_namespace_full_of_large_objects_leaves_another_one_its_turn():
    large = largeobjects.LargeObjects()
    assert [large.begin("hostile", 0.0) > 0 for _ in range(10)] == [False] * 3 + [True] * 7
    assert large.begin("quiet", 0.0) == 0.0
    large.end("hostile", 0, 0.0, 0.0)
    assert large.begin("hostile", 0.0) == 0.0


def test_a_place_rests_as_long_as_the_work_took():
    large = largeobjects.LargeObjects()
    assert [large.begin("hostile", 10.0) for _ in range(3)] == [0.0] * 3
    large.end("hostile", MIB // 4, 10.0, 12.0)
    assert large.begin("hostile", 13.9) > 0
    assert large.begin("hostile", 14.0) == 0.0
    large.end("hostile", 0, 14.0, 74.0)  # and no longer than this
    assert large.begin("hostile", 78.9) > 0
    assert large.begin("quiet", 78.9) == 0.0  # not held up by what rests
    assert large.begin("hostile", 79.1) == 0.0


def test_a_place_rests_longer_after_a_larger_object():
    """What the API server decoded of it has to be collected, however quick the answer was."""
    large = largeobjects.LargeObjects()
    assert [large.begin("hostile", 10.0) for _ in range(3)] == [0.0] * 3
    large.end("hostile", MIB, 10.0, 10.1)
    large.end("hostile", 64 * 1024, 10.0, 10.1)
    assert large.begin("hostile", 10.3) > 0
    assert large.begin("hostile", 10.4) == 0.0  # the smaller one's
    assert large.begin("hostile", 14.0) > 0
    assert large.begin("hostile", 14.2) == 0.0


def test_looks_for_a_place_do_not_grow_with_what_waits_and_find_it_at_once():
    large = largeobjects.LargeObjects()
    for _ in range(3):
        assert large.begin("hostile", 0.0) == 0.0
        large.end("hostile", MIB, 0.0, 0.0)
    waiting = [(0.0, number) for number in range(300)]
    heapq.heapify(waiting)
    looks, begun = 0, []
    while waiting[0][0] < 12.0:
        now, number = heapq.heappop(waiting)
        looks += 1
        if seconds := large.begin("hostile", now):
            heapq.heappush(waiting, (now + seconds, number))
        else:
            begun.append(now)
            large.end("hostile", MIB, now, now)
    assert len(begun) == 6  # three at 4 s and three at 8 s
    assert all(now % 4 < 0.2 for now in begun)
    assert looks < 300 + 60 * 12
    assert large.begin("hostile", 11.99) > 0
    assert large.begin("quiet", 11.99) == 0.0


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


async def test_a_large_object_is_applied_when_no_slots_are_due(monkeypatch):
    world = World()
    at_us: list[int] = []
    async with world.leader():
        apply = world.reconcile_queue._apply

        async def noting(tasks, **kind):
            at_us.append(world.clock.now_us() % 1_000_000)
            return await apply(tasks, **kind)

        monkeypatch.setattr(world.reconcile_queue, "_apply", noting)
        for number in range(6):
            await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
        for _ in range(60):
            await world.clock.advance(0.1)
    assert len(at_us) == 6
    assert all(300_000 <= at < 550_000 for at in at_us)


async def test_a_large_object_that_is_deleted_while_it_waits_by_name_is_no_trouble(monkeypatch):
    monkeypatch.setattr(largeobjects, "_MOST_WAITING_BYTES", 0)
    world = World()
    await world.apply_job("large", jobTemplate=a_template(1))
    await world.apply_job("gone", jobTemplate=a_template(2))
    async with world.leader():
        await world.delete("gone")
        for _ in range(20):
            await world.clock.advance(0.2)
        assert [held.name for held in world.definitions()] == ["large"]
