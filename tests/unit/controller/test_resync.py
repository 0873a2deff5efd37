"""Objects and definitions compared."""

from __future__ import annotations

import asyncio
import copy

import pytest

from duepoint.controller.schedules import resync
from duepoint.kube import errors as kube_errors
from tests.unit.controller.world import NAMESPACE, World


async def test_a_restart_with_everything_in_order_writes_and_arms_nothing():
    world = World()
    async with world.leader():
        for number in range(30):
            await world.apply(f"s{number}")
    held = world.definitions()
    writes = world.status_writes()
    reads = []
    definition = world.queue.definitions.definition

    async def counted(*args):
        reads.append(args)
        return await definition(*args)

    world.queue.definitions.definition = counted
    async with world.leader(epoch=2):
        await world.clock.advance(60)
        assert world.definitions() == held
        assert world.status_writes() == writes
        assert reads == []


@pytest.mark.parametrize("page", [1, 2], ids=["first page", "second page"])
async def test_a_list_that_fails_removes_nothing(page, monkeypatch):
    world = World()
    async with world.leader():
        for number in range(6):
            await world.apply(f"s{number}")
        pages = world.api.list_pages
        count = 0

        async def breaking(_, path, item_type, **options):
            nonlocal count
            async for one in pages(path, item_type, limit=3):
                count += 1
                if count == page:
                    raise kube_errors.Forbidden("no", is_about_rights=True)
                yield one

        monkeypatch.setattr(type(world.api), "list_pages", breaking)
        with pytest.raises(kube_errors.Forbidden):
            await world.resync.compare()
        await world.clock.settle()
        assert len(world.definitions()) == 6


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr(resync, "_MANY", 3)


@pytest.mark.usefixtures("few_are_many")
async def test_many_missing_objects_are_believed_only_a_minute_later():
    world = World()
    async with world.leader():
        for number in range(6):
            await world.apply(f"s{number}")
        world.watches = False
        objects = dict(world.api.objects)
        for number in range(5):
            await world.delete(f"s{number}")
        world.resync.listed.clear()
        comparing = asyncio.create_task(world.resync.compare())
        await world.clock.advance(30)
        assert len(world.definitions()) == 6
        assert world.resync.listed.is_set()  # nobody's status waits for the second look
        world.api.objects["schedules", "reports", "s0"] = objects["schedules", "reports", "s0"]
        await world.clock.advance(31)
        await comparing
        await world.clock.settle()
        assert {one.name for one in world.definitions()} == {"s0", "s5"}


async def test_what_is_deleted_during_the_list_is_not_brought_back(monkeypatch):
    world = World()
    async with world.leader():
        await world.apply("one")
        await world.apply("two")
        pages = world.api.list_pages

        async def slow(_, path, item_type, **options):
            async for one in pages(path, item_type):
                await world.delete("one")
                yield one

        monkeypatch.setattr(type(world.api), "list_pages", slow)
        await world.resync.compare()
        await world.clock.settle()
        assert [one.name for one in world.definitions()] == ["two"]


async def test_what_is_deleted_while_an_emptied_queue_is_filled_is_not_stored(monkeypatch):
    world = World()
    async with world.leader():
        await world.apply("one")
        await world.lose_redis()
        upsert = type(world.queue.writer).upsert

        async def late(self, wanted, epoch):
            if world.api.stored("schedules", NAMESPACE, "one"):
                await world.delete("one")
            return await upsert(self, wanted, epoch)

        monkeypatch.setattr(type(world.queue.writer), "upsert", late)
        await world.resync.compare()
        await world.clock.settle()
        assert not world.definitions()


async def test_what_a_list_shows_of_an_older_state_than_was_applied_was_restored():
    world = World()
    async with world.leader():
        uid = (await world.apply())["metadata"]["uid"]
        before = copy.deepcopy(world.api.objects)
        await world.apply(schedule="@every 7m")
        assert world.definition(uid).generation == 2
        world.api.objects.update(before)
        await world.lose_redis()
        await world.resync.compare()
        await world.clock.settle()
        assert world.definition(uid).generation == 1


async def test_a_schedule_of_a_namespace_that_is_not_watched_any_more_fires_no_more():
    world = World()
    async with world.leader():
        await world.apply()
        await world.apply("another")
    async with world.leader(epoch=2, namespaces=("elsewhere",)):
        assert world.definitions() == []
    async with world.leader(epoch=3):  # watched again, it is filled from the statuses
        assert len(world.definitions()) == 2
