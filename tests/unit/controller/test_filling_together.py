"""An emptied queue is filled many at a time, and each object ends as it would have alone."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.controller.world import World


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
