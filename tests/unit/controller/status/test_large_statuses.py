"""Statuses of large objects take turns, and a slow API server gets fewer writes at a time."""

from __future__ import annotations

import pytest

from duepoint.controller.status import writequeue
from duepoint.controller.status.writequeue import SLOW_SECONDS, LargeWriteQueue, Parallel
from tests.fakes.fakekubernetes import FakeKubernetes
from tests.unit.controller.test_large_objects import a_template
from tests.unit.controller.world import NAMESPACE, World

KIB = 1024


# -- turns -----------------------------------------------------------------------------------------


def written(large: LargeWriteQueue, *, seconds: float, took: float, sizes: dict[str, int]) -> list:
    """Who is written for when, if a write of anybody's takes so long."""
    now, found = 0.0, []
    while (due := large.next_due()) is not None and max(now, due) < seconds:
        now = max(now, due)
        name = large.take(now)
        assert name is not None, "next_due promised one"
        found.append((now, name))
        namespace = name.partition("-")[0]
        large.rest(namespace, sizes[namespace], now, now + took)
        now += took
    return found


def test_a_large_status_is_written_at_once_when_no_other_is():
    large = LargeWriteQueue()
    large.bring_forward("a", "a-1", 3.0)
    assert large.next_due() == 3.0
    assert large.take(2.9) is None
    assert large.take(3.0) == "a-1"
    assert large.next_due() is None


def test_a_namespace_rests_after_a_write_the_longer_the_larger_the_object():
    large = LargeWriteQueue()
    for number in range(3):
        large.bring_forward("a", f"a-{number}", 0.0)
    large.take(0.0)
    large.rest("a", 256 * KIB, 0.0, 0.1)
    assert large.next_due() == pytest.approx(0.1 + 0.8)
    large.take(0.9)
    large.rest("a", 1024 * KIB, 0.9, 1.9)
    assert large.next_due() == pytest.approx(1.9 + 5.0)  # and no longer


def test_after_any_write_the_server_has_as_much_time_for_others():
    large = LargeWriteQueue()
    names = [f"{namespace}-1" for namespace in "abcdefghij"]
    for name in names:
        large.bring_forward(name[0], name, 0.0)
    found = written(large, seconds=100.0, took=0.1, sizes=dict.fromkeys("abcdefghij", 250 * KIB))
    assert [name for _, name in found] == names
    assert found[-1][0] == pytest.approx(9 * 0.2)


def test_a_namespace_with_hundreds_of_them_does_not_hold_up_another_one():
    large = LargeWriteQueue()
    for number in range(300):
        large.bring_forward("hostile", f"hostile-{number}", 0.0)
    large.bring_forward("quiet", "quiet-1", 1.0)
    sizes = {"hostile": 1024 * KIB, "quiet": 40 * KIB}
    found = written(large, seconds=60.0, took=0.3, sizes=sizes)
    assert next(at for at, name in found if name == "quiet-1") <= 1.6
    assert sum(name != "quiet-1" for _, name in found) <= 13


def test_what_was_dropped_is_not_written():
    large = LargeWriteQueue()
    large.bring_forward("a", "a-1", 1.0)
    assert large.drop("a", "a-1") == 1.0
    assert large.drop("b", "b-1") is None
    assert large.next_due() is None
    assert large.take(9.0) is None


# -- at a time -------------------------------------------------------------------------------------


def room(parallel: Parallel) -> int:
    count = 0
    while parallel.has_room():
        parallel.begin()
        count += 1
    for _ in range(count):
        parallel.end()
    return count


def test_a_slow_server_gets_half_as_many_at_a_time_and_one_always():
    parallel = Parallel(16)
    assert room(parallel) == 16
    for number, left in enumerate((8, 4, 2, 1, 1)):
        parallel.record_answer(number, number + 2 * SLOW_SECONDS)
        assert room(parallel) == left


def test_answers_of_the_same_slow_moment_count_once():
    parallel = Parallel(16)
    for _ in range(16):
        parallel.record_answer(10.0, 10.0 + 2 * SLOW_SECONDS)
    assert room(parallel) == 8


def test_a_quick_server_gets_more_at_a_time_one_by_one():
    parallel = Parallel(16)
    for number in range(5):
        parallel.record_answer(number, number + 1)
    counts = []
    for number in range(200):
        parallel.record_answer(10.0 + number, 10.0 + number + 0.01)
        counts.append(room(parallel))
    assert counts[0] == 2
    assert counts == sorted(counts)
    assert counts[-1] == 16


# -- the reporter ----------------------------------------------------------------------------------


class SlowStatuses:
    """Status writes of an API server take so long; how many there were at a time."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        self.most = self.now = 0
        self.names: list[str] = []
        request = FakeKubernetes.request

        async def slow(api: FakeKubernetes, verb: str, path: str, *args, **kwargs):
            if not path.endswith("/status"):
                return await request(api, verb, path, *args, **kwargs)
            self.now += 1
            self.most = max(self.most, self.now)
            self.names.append(path.split("/")[-2])
            try:
                await world.clock.sleep(seconds)
                return await request(api, verb, path, *args, **kwargs)
            finally:
                self.now -= 1

        monkeypatch.setattr(FakeKubernetes, "request", slow)


async def test_statuses_of_large_objects_are_written_one_at_a_time_and_all_of_them(monkeypatch):
    world = World()
    slow = SlowStatuses(world, monkeypatch, 0.05)
    for number in range(8):
        await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
    async with world.leader():
        for _ in range(100):
            await world.clock.advance(0.1)
        assert slow.most == 1
        assert sorted(slow.names) == [f"large-{number}" for number in range(8)]
        assert world.ready("large-7") == ("True", "Armed")


async def test_large_objects_do_not_hold_up_the_statuses_of_others(monkeypatch):
    world = World()
    slow = SlowStatuses(world, monkeypatch, 0.5)
    for number in range(30):
        await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
    async with world.leader():
        await world.clock.advance(1.0)
        assert len(slow.names) < 3
        await world.apply("small")
        for _ in range(10):
            await world.clock.advance(0.1)
        assert world.ready("small") == ("True", "Armed")


async def test_an_edit_that_makes_an_object_small_frees_its_status_from_the_turns(monkeypatch):
    world = World()
    SlowStatuses(world, monkeypatch, 0.5)
    for number in range(30):
        await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
    async with world.leader():
        await world.clock.advance(1.0)
        await world.apply("large-29", jobTemplate=None)
        await world.apply_job("large-29")
        for _ in range(20):
            await world.clock.advance(0.1)
        assert world.ready("large-29") == ("True", "Armed")
        assert (
            world.reporter._writer._large.drop(
                NAMESPACE, world.object("large-29")["metadata"]["uid"]
            )
            is None
        )


async def test_a_large_object_that_goes_takes_no_turn(monkeypatch):
    world = World()
    slow = SlowStatuses(world, monkeypatch, 0.5)
    for number in range(5):
        await world.apply_job(f"large-{number}", jobTemplate=a_template(number))
    async with world.leader():
        await world.clock.advance(0.3)
        for number in range(5):
            await world.delete(f"large-{number}")
        for _ in range(100):
            await world.clock.advance(0.1)
        assert len(slow.names) <= 1


def test_the_larger_the_object_the_further_apart_are_its_statuses():
    made = writequeue.WriteInterval()
    assert made.rest(0.0, least=60.0) == 0
    made = made.written(100.0)
    assert made.rest(100.0) == 2
    assert made.rest(100.0, least=writequeue.least_distance(40 * KIB)) == 10
    assert made.rest(100.0, least=writequeue.least_distance(250 * KIB)) == 60
    assert made.rest(100.0, least=writequeue.least_distance(1024 * KIB)) == 60
    assert made.hurried().rest(100.0, least=writequeue.least_distance(40 * KIB)) == 10
