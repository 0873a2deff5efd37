"""An upgrade with new zone data: chains move to their new times, and no phantom slot runs."""

from __future__ import annotations

import contextlib

import pytest

from duepoint.expressions import timezones
from duepoint.expressions.timezones import Zone
from duepoint.schedules import spec
from tests.fakes.recordingtarget import RecordingTarget
from tests.scenarios.test_contents import compared, counting
from tests.support import virtualqueue
from tests.support.builders import at
from tests.unit.controller.status.test_openslots import a_worker
from tests.unit.controller.world import World

HOUR = 3_600
STEP = 300
#: 14:00 in Berlin, in winter; the worlds begin at 12:00 UTC.
BERLIN = {"schedule": "0 14 * * *", "timeZone": "Europe/Berlin", "catchUpPolicy": "All"}
NEW_YORK = {"schedule": "0 9 * * *", "timeZone": "America/New_York"}


@pytest.fixture
def upgrade(monkeypatch):
    """Switch to a version in which Berlin is always this many hours ahead of UTC."""
    load = timezones.load

    @contextlib.contextmanager
    def upgraded(hours: int):
        berlin = Zone("Europe/Berlin", (-(1 << 62),), (hours * HOUR,))
        with monkeypatch.context() as patched:
            patched.setattr(
                timezones, "load", lambda name: berlin if name == berlin.name else load(name)
            )
            forget_parsed()
            yield
        forget_parsed()

    return upgraded


def forget_parsed() -> None:
    """Clear the caches, as in a new process."""
    for cached in (spec._shape, timezones.data_of, timezones.located):
        cached.cache_clear()


def fired(target: RecordingTarget) -> list[int]:
    return [firing.slot_us for firing in target.fired]


async def hours(world: World, count: float) -> None:
    """Let this many hours pass, paused while nothing is due."""
    end_us = world.clock.now_us() + int(count * HOUR) * 1_000_000
    while (now_us := world.clock.now_us()) < end_us:
        soonest_us = min([end_us, *virtualqueue.points_of().values()])
        if (idle_us := soonest_us - now_us - 2 * STEP * 1_000_000) > 0:
            await world.clock.suspend(idle_us / 1e6)
        await world.clock.advance(min(STEP, (end_us - world.clock.now_us()) / 1e6))


@pytest.mark.parametrize(
    ("offset", "slots"),
    [
        pytest.param(0, ["2026-03-01 14:00", "2026-03-02 14:00"], id="later-today"),
        pytest.param(2, ["2026-03-02 12:00"], id="earlier-and-past-today"),
        pytest.param(1, ["2026-03-01 13:00", "2026-03-02 13:00"], id="the-same-until-summer"),
    ],
)
async def test_an_armed_chain_goes_to_its_new_time_and_nothing_runs_that_never_was(
    upgrade, offset, slots
):
    world = World()
    async with world.leader():
        uid = (await world.apply(**BERLIN))["metadata"]["uid"]
        await world.clock.advance(5)
        assert world.chain_due_us(uid) == at("2026-03-01 13:00")
    target = RecordingTarget(world.clock)
    with upgrade(offset):
        async with world.leader(epoch=2), a_worker(world, target):
            await hours(world, 26.5)
            assert world.ready() == ("True", "Armed")
            assert world.status()["runs"]["missed"] == 0
    assert fired(target) == [at(slot) for slot in slots]


async def test_only_the_zones_that_have_changed_are_armed_again(upgrade):
    world = World()
    async with world.leader():
        await world.apply(**BERLIN)
        await world.apply("york", **NEW_YORK)
        await world.apply("utc", schedule="0 9 * * *")
        await world.clock.advance(5)
    armed = counting(world)
    with upgrade(2):
        async with world.leader(epoch=2):
            await world.clock.advance(5)
    assert [one.definition.name for one in armed] == ["nightly"]


async def test_a_worker_of_the_next_version_goes_by_the_data_of_the_leader(upgrade):
    world = World()
    target = RecordingTarget(world.clock)
    async with world.leader():
        await world.apply(**BERLIN)
        await world.clock.advance(5)
    with upgrade(0):
        async with a_worker(world, target):
            await hours(world, 26.5)
    assert fired(target) == [at("2026-03-01 13:00"), at("2026-03-02 13:00")]


async def test_an_overdue_slot_that_the_new_data_name_too_is_run(upgrade):
    world = World()
    async with world.leader():
        await world.apply(**BERLIN)
        await hours(world, 25.5)  # those of 13:00 of two days are overdue
    target = RecordingTarget(world.clock)
    with upgrade(1):
        async with world.leader(epoch=2), a_worker(world, target):
            await hours(world, 1)
    assert fired(target) == [at("2026-03-01 13:00"), at("2026-03-02 13:00")]


async def test_a_chain_that_a_worker_holds_moves_once_it_is_free(upgrade):
    world = World()
    target = RecordingTarget(world.clock)
    async with world.leader():
        uid = (await world.apply(**BERLIN))["metadata"]["uid"]
        await hours(world, 1)
    target.hold()
    async with a_worker(world, target):
        await world.clock.advance(1)
        assert len(target.fired) == 1
        with upgrade(2):
            async with world.leader(epoch=2):
                await world.clock.advance(2)
                assert world.definition(uid).rule.timing.zone_data != "7200;;"
                target.let_go()
                await world.clock.advance(20)
                assert world.definition(uid).rule.timing.zone_data == "7200;;"
                assert world.chain_due_us(uid) == at("2026-03-02 12:00")
    assert fired(target) == [at("2026-03-01 13:00")]


async def test_an_emptied_queue_is_made_again_with_the_new_times_and_what_has_ended(upgrade):
    world = World()
    target = RecordingTarget(world.clock)
    async with world.leader():
        await world.apply(**BERLIN)
        async with a_worker(world, target):
            await hours(world, 1.5)
    world.queue.flush()
    with upgrade(-1):
        async with world.leader(epoch=2), a_worker(world, target):
            await compared(world)
            await hours(world, 2)
    assert fired(target) == [at("2026-03-01 13:00"), at("2026-03-01 15:00")]
