"""ScheduleRuns: triggers and backfills, from the object to what ran and what is told."""

from __future__ import annotations

import pytest

from duepoint.kube import errors as kube_errors
from tests.unit.controller.runworld import RunWorld
from tests.unit.controller.world import NAMESPACE


async def test_a_trigger_runs_a_schedule_once_and_is_complete():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        await world.run_schedule()
        await world.clock.advance(2)
        (firing,) = world.target.fired
        created = world.run_object()["metadata"]["creationTimestamp"]
        assert (firing.trigger, firing.run_uid) == (
            "Manual", world.run_object()["metadata"]["uid"],
        )  # fmt: skip
        assert created == "2026-03-01T12:00:00Z"
        assert firing.slot_us == world.clock.now_us() // 1_000_000 * 1_000_000 - 2_000_000
        assert world.counts() == (1, 1, 1, 0, 0)
        assert world.run_condition("Complete")["status"] == "True"
        assert world.run_condition("Ready")["status"] == "True"
        assert world.run_condition("Reconciling") is None
        assert world.run_status()["observedGeneration"] == 1
        assert {"startTime", "completionTime"} <= world.run_status().keys()
        assert "active" not in world.run_status()


async def test_a_large_payload_is_carried_by_a_leader_that_takes_over():
    world = RunWorld()
    async with world.leader():
        await world.run_schedule(trigger={"payload": "x" * 50_000})
        await world.clock.advance(2)
    await world.apply()
    async with world.leader(), world.working():
        await world.clock.advance(5)
        (firing,) = world.target.fired
        assert len(firing.action.payload) == 50_002
        assert world.run_condition("Complete")["status"] == "True"


async def test_a_failed_job_makes_its_trigger_failed_and_stalled():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job()
        await world.run_schedule()
        await world.clock.advance(2)
        await world.finish_jobs(succeeded=False)
        await world.clock.advance(2)
        assert world.counts() == (1, 1, 0, 1, 0)
        assert world.run_condition("Failed")["status"] == "True"
        assert world.run_condition("Stalled")["status"] == "True"
        assert world.run_condition("Ready")["status"] == "False"
        assert "BackoffLimitExceeded" in world.run_status()["message"]


async def test_a_suspended_schedule_is_triggered_and_its_watermark_stays():
    async with RunWorld().leader() as world, world.working():
        await world.apply(suspend=True)
        settled = world.status().get("settledThrough")
        await world.run_schedule()
        await world.clock.advance(5)
        assert world.counts() == (1, 1, 1, 0, 0)
        assert world.status().get("settledThrough") == settled
        assert world.status()["lastRun"]["trigger"] == "Manual"


async def test_a_backfill_runs_every_slot_of_its_range_once_and_not_its_end():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 */6 * * *")
        await world.backfill()
        await world.clock.advance(5)
        assert [one.slot_us % 86_400_000_000 // 3_600_000_000 for one in world.target.fired] == [
            0, 6, 12, 18,
        ]  # fmt: skip
        assert {one.trigger for one in world.target.fired} == {"Backfill"}
        assert world.counts() == (4, 4, 4, 0, 0)
        assert world.run_condition("Complete")["status"] == "True"


@pytest.mark.parametrize(
    ("order", "hours"), [("OldestFirst", [0, 6, 12, 18]), ("NewestFirst", [18, 12, 6, 0])]
)
async def test_one_at_a_time_goes_in_the_order_asked_for(order, hours):
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 */6 * * *")
        await world.backfill(order=order, maxParallel=1)
        await world.clock.advance(5)
        fired = [one.slot_us % 86_400_000_000 // 3_600_000_000 for one in world.target.fired]
        assert fired == hours


async def test_no_more_jobs_run_at_once_than_asked_for():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(schedule="0 * * * *", successfulJobsHistoryLimit=100)
        await world.backfill(maxParallel=3)
        seen = []
        for _ in range(8):
            await world.clock.advance(2)
            seen.append(await world.finish_jobs())
        await world.clock.advance(2)
        assert seen == [3] * 8
        assert len(set(world.slots_of_jobs())) == 24
        assert world.counts() == (24, 24, 24, 0, 0)
        assert world.run_condition("Complete")["status"] == "True"


async def test_a_range_without_slots_is_complete():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 0 1 1 *")
        await world.backfill()
        await world.clock.advance(2)
        assert world.counts() == (0, 0, 0, 0, 0)
        assert world.run_condition("Complete")["status"] == "True"


async def test_slots_after_the_creation_of_the_backfill_are_left_to_the_schedule():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 */6 * * *")
        await world.run_schedule(
            backfill={"from": "2026-03-01T00:00:00Z", "to": "2026-03-02T00:00:00Z"}
        )
        await world.clock.advance(5)
        assert len(world.target.fired) == 3  # 0, 6 and 12 o'clock; now it is noon
        assert world.counts() == (3, 3, 3, 0, 0)


async def test_deleting_a_trigger_that_waits_withdraws_it():
    async with RunWorld().leader() as world:
        await world.apply()
        await world.run_schedule()
        await world.clock.advance(1)
        await world.delete_run()
        await world.clock.advance(1)
        async with world.working():
            await world.clock.advance(30)
        assert world.target.fired == []


async def test_a_run_that_waits_says_for_what():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job()
        world.api.job_quota["reports"] = 0
        await world.run_schedule()
        await world.clock.advance(3)
        assert "QuotaExceeded" in world.run_status()["message"]
        assert world.counts() == (1, 0, 0, 0, 0)
        world.api.job_quota["reports"] = 10
        await world.clock.advance(90)
        assert world.counts() == (1, 1, 0, 0, 0)
        assert "QuotaExceeded" not in world.run_status()["message"]


async def test_who_keeps_it_in_git_with_a_time_to_live_is_warned():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        labels = {"labels": {"argocd.argoproj.io/instance": "reports"}}
        await world.run_schedule(ttlSecondsAfterFinished=60, metadata=labels)
        await world.run_schedule("kept", metadata=labels)
        told = [one for one in world.news if one.regarding.kind == "ScheduleRun"]
        assert [(one.regarding.name, one.warning) for one in told] == [("again", True)]


async def test_a_payload_of_too_many_bytes_is_refused_and_nothing_runs():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        await world.run_schedule(trigger={"payload": "x" * 70_000})
        await world.clock.advance(2)
        assert world.run_condition("Stalled")["reason"] == "PayloadTooLarge"
        assert world.target.fired == []


async def test_two_triggers_of_one_slot_are_two_runs():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job()
        at = {"scheduledTime": "2026-01-05T06:07:08Z"}
        await world.run_schedule("one", trigger=at)
        await world.run_schedule("two", trigger=at)
        await world.clock.advance(2)
        assert len(world.jobs()) == 2


async def test_a_trigger_that_the_policy_skips_has_failed_and_says_why():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(concurrencyPolicy="Forbid")
        await world.run_schedule("first")
        await world.clock.advance(2)
        await world.run_schedule()
        await world.clock.advance(3)
        assert world.counts() == (1, 0, 0, 0, 1)
        assert world.run_condition("Failed")["reason"] == "ConcurrencyForbidden"
        assert len(world.jobs()) == 1


@pytest.mark.parametrize("is_newer", [True, False])
async def test_a_refused_status_makes_no_slot_of_a_schedulerun_run_again(is_newer):
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        quarter = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-01T00:15:00Z"}
        await world.backfill(maxParallel=1, **quarter)
        await world.clock.advance(0.2)
        refusal = kube_errors.Invalid("may not fall", causes=(("status", "may not fall"),))
        for _ in range(3):
            world.api.fail_next(refusal, verb="PATCH", resource="scheduleruns")
        if is_newer:  # by a former leader, of the run that it has seen last
            status = {**world.run_status(), "message": "0 of 3 runs have ended"}
            key = ("scheduleruns", NAMESPACE, "again")
            world.api.put(key, world.run_object() | {"status": status})
        await world.clock.advance(30)
        assert world.counts() == (3, 3, 3, 0, 0)
        assert world.run_condition("Complete")["status"] == "True"
        assert len(world.target.fired) == 3
        assert not any(shard.outcomes for shard in world.queue.shards.values())
