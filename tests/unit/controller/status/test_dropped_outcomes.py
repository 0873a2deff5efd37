"""Outcomes that were dropped before anybody read them: the watermark neither loses nor repeats."""

from __future__ import annotations

import pytest
import structlog
from prometheus_client import REGISTRY

from duepoint.delayqueue.claims import settling
from tests.fakes.recordingtarget import RecordingTarget
from tests.support import virtualqueue
from tests.support.builders import at
from tests.unit.controller.status.test_openslots import a_worker
from tests.unit.controller.world import World


@pytest.fixture
def nothing_is_kept(monkeypatch):
    monkeypatch.setattr(settling, "LEAST_RUNS_BYTES", 1)
    monkeypatch.setattr(settling, "MOST_RUNS_BYTES", 1)
    virtualqueue.look("CONFIG", "SET", "stream-node-max-entries", 1)  # they go as whole nodes
    yield
    virtualqueue.look("CONFIG", "SET", "stream-node-max-entries", 100)


def dropped() -> float:
    return REGISTRY.get_sample_value("duepoint_outcomes_dropped_total")


async def lose_the_index(world: World) -> None:
    await world.lose_redis()
    await world.resync.run()
    await world.clock.settle()


async def test_slots_are_not_run_again_though_their_outcomes_were_dropped_unread(nothing_is_kept):
    world = World()
    async with world.leader():
        uid = (await world.apply())["metadata"]["uid"]
    target = RecordingTarget(world.clock)
    async with a_worker(world, target):
        await world.clock.advance(1_000)
    assert [firing.slot_us for firing in target.fired] == [
        at(f"2026-03-01 12:{minute}:00") for minute in ("05", "10", "15")
    ]
    before = dropped()
    with structlog.testing.capture_logs() as lines:
        async with world.leader(epoch=2):
            await world.clock.advance(60)
            assert world.status()["settledThrough"] == "2026-03-01T12:15:00Z"
            await lose_the_index(world)
            assert world.chain_due_us(uid) == at("2026-03-01 12:20:00")
    assert dropped() > before
    assert [line for line in lines if "dropped unread" in line["event"]]
