"""Slots that are held up, and names that are taken, are seen on the Schedule."""

from __future__ import annotations

from duepoint.runs.run import RunState
from tests.fakes.recordingtarget import RecordingTarget
from tests.unit.controller.status.test_openslots import REFUSED, S, a_worker
from tests.unit.controller.status.test_reporter import FIRST, event
from tests.unit.controller.world import World


async def test_a_new_leader_keeps_what_was_said_of_an_overdue_slot():
    world = World()
    target = RecordingTarget(world.clock)
    target.always_reply(REFUSED)
    async with world.leader():
        made = await world.apply_job()
        async with a_worker(world, target):
            await world.clock.advance(400)
        before = world.condition("Overdue")
        assert before["message"].endswith("exceeded quota")
    writes = world.status_writes()
    async with world.leader(epoch=2):
        await world.clock.advance(60)
        assert world.condition("Overdue") == before
        assert world.status_writes() == writes
        await world.tell(made["metadata"]["uid"], event(made, FIRST))
        await world.clock.advance(5)
        assert world.condition("Overdue") is None


async def test_a_taken_name_is_a_condition_until_a_later_slot_starts():
    world = World()
    async with world.leader():
        made = await world.apply_job()
        uid = made["metadata"]["uid"]
        await world.clock.advance(301)
        taken = event(
            made, FIRST, RunState.MISSED, reason="NameConflict", message="Job x is not ours"
        )
        await world.tell(uid, taken)
        await world.clock.advance(5)
        conflict = world.condition("NameConflict")
        assert (conflict["status"], conflict["message"]) == ("True", "Job x is not ours")
    async with world.leader(epoch=2):
        later = event(made, FIRST + 300 * S, RunState.RUNNING, reason="Created")
        assert world.condition("NameConflict") == conflict
        await world.tell(uid, later)
        await world.clock.advance(5)
        assert world.condition("NameConflict") is None


async def test_a_slot_that_was_missed_for_a_quota_is_a_condition_until_a_later_one_starts():
    world = World()
    target = RecordingTarget(world.clock)
    target.always_reply(REFUSED)
    async with world.leader():
        await world.apply_job(startingDeadlineSeconds=30)
        async with a_worker(world, target):
            await world.clock.advance(340)
        missed = world.condition("Missed")
        assert missed["reason"] == "QuotaExceeded"
        assert missed["message"].startswith("the slot of 2026-03-01T12:05:00Z was missed: ")
        assert "exceeded quota" in missed["message"]
        ready = world.condition("Ready")["message"]
        assert ready == f"Missed (QuotaExceeded): {missed['message']}"
    target.always_reply(None)
    async with world.leader(epoch=2):
        await world.clock.advance(5)
        assert world.condition("Missed") == missed
        async with a_worker(world, target):
            await world.clock.advance(300)
        assert world.condition("Missed") is None
        assert "Missed" not in world.condition("Ready")["message"]
