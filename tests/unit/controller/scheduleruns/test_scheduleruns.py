"""ScheduleRuns: triggers and backfills, from the object to what ran and what is told."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from duepoint import errors
from duepoint.controller import inventory
from duepoint.controller.scheduleruns import runreads
from duepoint.controller.term import Acknowledgement
from duepoint.kube import errors as kube_errors
from duepoint.runs.outcome import Delivered, Rejected, Retry
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
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


async def test_a_run_that_ends_within_a_second_costs_two_status_writes():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        await world.clock.advance(3)
        writes = world.status_writes()
        await world.run_schedule()
        await world.clock.advance(1)
        mine = world.api.requests[-100:]
        assert sum(v == "PATCH" and "scheduleruns" in p for v, p in mine) == 2  # begun and ended
        assert world.status_writes() > writes


async def test_a_trigger_of_a_job_carries_slot_payload_and_name():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(payload={"report": "daily"})
        await world.run_schedule(
            trigger={"scheduledTime": "2026-01-05T06:07:08Z", "payload": {"report": "monthly"}}
        )
        await world.clock.advance(2)
        (job,) = world.jobs()
        assert job["metadata"]["name"].startswith("nightly-1767593228-")
        pod = job["spec"]["template"]["metadata"]["annotations"]
        assert pod["duepoint.dev/payload"] == '{"report":"monthly"}'
        assert pod["duepoint.dev/trigger"] == "Manual"
        assert pod["duepoint.dev/scheduled-time"] == "2026-01-05T06:07:08Z"
        assert world.run_status()["active"][0]["jobName"] == job["metadata"]["name"]
        assert world.run_condition("Reconciling")["status"] == "True"
        assert world.run_condition("Ready")["status"] == "Unknown"
        await world.finish_jobs()
        await world.clock.advance(2)
        assert world.counts() == (1, 1, 1, 0, 0)
        assert world.run_condition("Complete")["status"] == "True"


async def test_a_large_payload_is_not_kept_and_carried_all_the_same():
    """It has up to 64 KiB, and thousands of runs may wait for a Schedule that never comes."""
    async with RunWorld().leader() as world, world.working():
        await world.run_schedule(trigger={"payload": "x" * 50_000})
        await world.clock.advance(2)
        run = world.services.runs.states.get(world.run_object()["metadata"]["uid"])
        assert world.run_condition("Ready")["reason"] == "ScheduleNotFound"
        assert len(msgspec.json.encode((run.seen, run.wanted))) < 1_000
        await world.apply_job()
        await world.clock.advance(2)
        (job,) = world.jobs()
        pod = job["spec"]["template"]["metadata"]["annotations"]
        assert len(pod["duepoint.dev/payload"]) == 50_002
        await world.finish_jobs()
        await world.clock.advance(5)
        assert world.run_condition("Complete")["status"] == "True"
        assert len(msgspec.json.encode((run.seen, run.wanted))) < 1_000


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


async def test_an_inventory_reads_no_payloads_into_memory():
    """Thousands of runs may wait for a retry, each with 64 KiB."""
    async with RunWorld().leader() as world, world.working():
        await world.apply(webhook={"url": "https://hooks.example.com/x"})
        world.target.always_reply(Retry(reason=Reason.NETWORK, message="refused"))
        await world.run_schedule(trigger={"payload": "x" * 50_000})
        await world.clock.advance(2)
        (held,) = [one async for one in inventory.occurrences(world.queue, points.RUN_KINDS)]
        assert len(world.target.fired[0].action.payload) == 50_002
        assert held[1].record.attempt == 1
        assert not held[1].record.payload
        world.target.always_reply(Delivered(accepted_us=world.clock.now_us()))
        await world.clock.advance(60)
        assert len(world.target.fired[-1].action.payload) == 50_002
        assert world.run_condition("Complete")["status"] == "True"


async def test_a_run_whose_object_is_gone_when_its_payload_is_read_starts_nothing():
    async with RunWorld().leader() as world, world.working():
        await world.run_schedule(trigger={"payload": "x" * 50_000})
        await world.clock.advance(2)
        run = world.services.runs.states.get(world.run_object()["metadata"]["uid"])
        run.seen = msgspec.structs.replace(run.seen, uid="of-an-older-one")
        assert await runreads.payload_of(world.api, run.seen) is None
        await world.apply()
        await world.clock.advance(5)
        assert world.target.fired == []
        assert not run.course.open


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


@pytest.mark.parametrize("parallel", [2, 5, 24])
@pytest.mark.parametrize("kind", ["webhook", "stream"])
async def test_newest_first_is_newest_first_within_each_batch_too(kind, parallel):
    target = {"stream": {"name": "ticks"}} if kind == "stream" else {}
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 * * * *", **target)
        await world.backfill(order="NewestFirst", maxParallel=parallel)
        await world.clock.advance(60)
        fired = [one.slot_us % 86_400_000_000 // 3_600_000_000 for one in world.target.fired]
        assert fired == list(range(23, -1, -1))


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


async def test_runs_that_exclude_one_another_go_one_after_the_other():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(schedule="0 */6 * * *", concurrencyPolicy="Forbid")
        await world.backfill(maxParallel=5)
        await world.clock.advance(2)
        assert len(world.jobs()) == 1
        for _ in range(4):
            await world.finish_jobs()
            await world.clock.advance(2)
        assert world.counts() == (4, 4, 4, 0, 0)


async def test_a_range_with_more_slots_than_the_limit_starts_nothing_and_names_both_numbers():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="* * * * *")
        await world.backfill(limit=1439)
        await world.clock.advance(5)
        assert world.target.fired == []
        assert world.run_condition("Failed")["reason"] == "TooManySlots"
        assert world.run_condition("Stalled")["status"] == "True"
        assert "1440" in world.run_status()["message"]
        assert "1439" in world.run_status()["message"]
        assert world.counts() == (1440, 0, 0, 0, 0)


async def test_ten_million_slots_are_counted_and_refused_at_once():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="@every 1s", startTime="2025-01-01T00:00:00Z")
        await world.run_schedule(
            backfill={"from": "2025-01-01T00:00:00Z", "to": "2025-05-01T00:00:00Z"}
        )
        await world.clock.advance(2)
        assert {one.trigger for one in world.target.fired} <= {"Schedule", "CatchUp"}
        assert str(120 * 86400) in world.run_status()["message"]


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


async def test_without_its_schedule_it_waits_and_runs_once_there_is_one():
    async with RunWorld().leader() as world, world.working():
        await world.run_schedule()
        assert world.run_condition("Reconciling")["reason"] == "ScheduleNotFound"
        assert world.run_condition("Ready")["status"] == "Unknown"
        await world.apply()
        await world.clock.advance(2)
        assert world.counts() == (1, 1, 1, 0, 0)


async def test_a_schedule_that_cannot_be_accepted_is_waited_for():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 0 30 2 *")
        await world.run_schedule()
        assert world.run_condition("Reconciling")["reason"] == "ScheduleNotReady"
        await world.apply(schedule="0 0 28 2 *")
        await world.clock.advance(2)
        assert world.counts() == (1, 1, 1, 0, 0)


async def test_deleting_a_backfill_starts_no_further_slot_and_leaves_jobs_that_run():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(schedule="0 * * * *", successfulJobsHistoryLimit=100)
        await world.backfill(maxParallel=2)
        await world.clock.advance(2)
        await world.delete_run()
        await world.finish_jobs()
        await world.clock.advance(60)
        assert len(world.jobs()) == 2


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


async def test_a_retry_of_a_deleted_run_is_not_made():
    async with RunWorld().leader() as world, world.working():
        await world.apply(webhook={"url": "https://hooks.example.com/x", "retry": {}})
        world.target.always_reply(Retry(reason=Reason.NETWORK, message="refused"))
        await world.run_schedule()
        await world.clock.advance(0.5)
        tries = len(world.target.fired)
        await world.delete_run()
        await world.clock.advance(120)
        assert len(world.target.fired) == tries


async def test_a_failed_delivery_makes_the_trigger_failed():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        world.target.always_reply(Rejected(reason=Reason.REJECTED, message="HTTP 400"))
        await world.run_schedule()
        await world.clock.advance(3)
        assert world.counts() == (1, 1, 0, 1, 0)
        assert "HTTP 400" in world.run_status()["message"]


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


async def test_it_is_deleted_when_its_time_to_live_is_over_and_not_before():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        await world.run_schedule(ttlSecondsAfterFinished=60)
        await world.clock.advance(55)
        assert world.run_object() is not None
        await world.clock.advance(10)
        assert world.run_object() is None
        await world.clock.advance(600)
        assert len(world.target.fired) == 3  # one by hand, two on their times


async def test_the_time_to_live_counts_on_under_the_next_leader():
    world = RunWorld()
    async with world.leader(), world.working():
        await world.apply()
        await world.run_schedule(ttlSecondsAfterFinished=60)
        await world.clock.advance(5)
    async with world.leader(epoch=2), world.working():
        await world.clock.advance(70)
        assert world.run_object() is None


async def test_who_keeps_it_in_git_with_a_time_to_live_is_warned():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        labels = {"labels": {"argocd.argoproj.io/instance": "reports"}}
        await world.run_schedule(ttlSecondsAfterFinished=60, metadata=labels)
        await world.run_schedule("kept", metadata=labels)
        told = [one for one in world.news if one.regarding.kind == "ScheduleRun"]
        assert [(one.regarding.name, one.warning) for one in told] == [("again", True)]


async def test_the_history_never_deletes_a_job_of_which_no_status_tells_the_end():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(schedule="0 * * * *", successfulJobsHistoryLimit=1)
        await world.backfill(maxParallel=4)
        await world.clock.advance(2)
        while await world.finish_jobs():
            await world.clock.advance(3)
        await world.clock.advance(10)
        assert world.counts() == (24, 24, 24, 0, 0)
        assert len(world.jobs()) == 1


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


async def test_a_trigger_may_bring_a_policy_of_its_own():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(concurrencyPolicy="Forbid")
        await world.run_schedule("first")
        await world.clock.advance(2)
        await world.run_schedule(trigger={"concurrencyPolicy": "Allow"})
        await world.clock.advance(3)
        assert len(world.jobs()) == 2
        await world.run_schedule("third", trigger={"concurrencyPolicy": "Forbid"})
        await world.clock.advance(3)
        assert world.counts("third") == (1, 0, 0, 0, 1)


async def test_a_trigger_that_waits_for_its_turn_runs_when_the_former_run_ends():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job(schedule="0 0 1 1 *", concurrencyPolicy="Queue")
        await world.run_schedule("first")
        await world.clock.advance(2)
        await world.run_schedule()
        await world.clock.advance(3)
        assert len(world.jobs()) == 1
        assert world.counts() == (1, 0, 0, 0, 0)
        assert "waiting: ConcurrencyQueued: a former run is active" in world.run_status()["message"]
        await world.finish_jobs()
        await world.clock.advance(60)
        assert len(world.jobs()) == 2
        assert "ConcurrencyQueued" not in world.run_status()["message"]
        await world.finish_jobs()
        await world.clock.advance(5)
        assert world.counts() == (1, 1, 1, 0, 0)


async def test_triggers_of_the_same_second_are_counted_each():
    async with RunWorld().leader() as world, world.working():
        await world.apply(schedule="0 0 1 1 *")
        for name in ("one", "two", "three"):
            await world.run_schedule(name)
        await world.clock.advance(5)
        assert len(world.target.fired) == 3
        assert world.status()["runs"]["started"] == 3
        assert world.status()["runs"]["succeeded"] == 3


async def test_a_request_that_stays_open_counts_as_started_and_running_within_the_status_interval():
    async with RunWorld().leader() as world, world.working():
        world.target.hold()
        await world.apply(schedule="0 0 1 1 *")
        await world.run_schedule()
        await world.clock.advance(1)
        assert world.counts() == (1, 0, 0, 0, 0)
        await world.clock.advance(5)
        assert world.counts() == (1, 1, 0, 0, 0)
        (active,) = world.run_status()["active"]
        assert active["startTime"] == "2026-03-01T12:00:00Z"
        assert "1 running" in world.run_status()["message"]
        assert world.status()["runs"]["started"] == 1
        assert world.status()["lastRun"]["outcome"] == "Running"
        world.target.let_go()
        await world.clock.advance(5)
        assert world.counts() == (1, 1, 1, 0, 0)
        assert world.status()["runs"]["started"] == world.status()["runs"]["succeeded"] == 1


async def test_a_run_between_two_tries_is_not_running_and_says_why():
    refused = Retry(reason=Reason.NETWORK, message="Connection refused")
    world = RunWorld()
    async with world.leader(), world.working():
        world.target.always_reply(refused)
        await world.apply(schedule="0 0 1 1 *")
        await world.run_schedule()
        await world.clock.advance(5)
        assert world.counts() == (1, 1, 0, 0, 0)
        status = world.run_status()
        assert world.run_condition("Reconciling")["reason"] == "Retrying"
        assert "0 running, 1 tried again: Network: Connection refused" in status["message"]
        (active,) = status["active"]
        assert active["trouble"].startswith("Network: Connection refused; next try at 2026-03-01T")
        assert world.status()["lastRun"]["outcome"] == "Retrying"
    async with world.leader(epoch=2):
        await world.clock.advance(2)
        assert world.run_condition("Reconciling")["reason"] == "Retrying"
        world.target.always_reply(None)
        async with world.working():
            await world.clock.advance(120)
        assert world.counts() == (1, 1, 1, 0, 0)
        assert "active" not in world.run_status()


async def test_an_open_request_of_a_regular_slot_is_shown_and_holds_the_watermark():
    async with RunWorld().leader() as world, world.working():
        await world.apply()
        await world.clock.advance(1)
        settled = world.status().get("settledThrough", "")
        world.target.hold()
        await world.clock.advance(306)
        assert world.status()["lastRun"]["outcome"] == "Running"
        assert world.status()["lastScheduleTime"] == "2026-03-01T12:05:00Z"
        assert world.status()["runs"]["started"] == 1
        assert world.status().get("settledThrough", "") == settled
        world.target.let_go()
        await world.clock.advance(5)
        assert world.status()["runs"] == {
            "started": 1, "succeeded": 1, "failed": 0, "missed": 0, "skipped": 0,
        }  # fmt: skip
        assert world.status()["settledThrough"] == "2026-03-01T12:05:00Z"


@contextlib.asynccontextmanager
async def looked_at(world: RunWorld, uid: str):
    """A look at this ScheduleRun is under way: the queue has not answered yet."""
    definitions, may_answer = world.runs._definitions, asyncio.Event()

    async def slow(schedule_uid: str, namespace: str):
        await may_answer.wait()
        return await definitions(schedule_uid, namespace)

    world.runs._definitions = slow
    world.runs._tasks.put(uid, uid)
    await world.clock.settle()
    yield
    may_answer.set()
    await world.clock.advance(2)


async def test_the_job_of_a_run_that_was_deleted_while_it_was_looked_at_is_kept_no_longer():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job()
        made = await world.run_schedule()
        await world.clock.advance(2)
        (job,) = world.jobs()
        assert world.runs.states.keeps(NAMESPACE, job["metadata"]["name"])
        async with looked_at(world, made["metadata"]["uid"]):
            await world.delete_run()
        assert not world.runs.states.keeps(NAMESPACE, job["metadata"]["name"])
        assert not world.runs.states._by_schedule


async def test_news_of_a_run_that_is_deleted_while_it_is_looked_at_are_acknowledged_once():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job()
        made = await world.run_schedule()
        await world.clock.advance(2)
        uid = made["metadata"]["uid"]
        shared = Acknowledgement(
            when_done=lambda: None, outstanding=2
        )  # and another status is to tell
        world.runs.states.get(uid).acks.append(shared)
        async with looked_at(world, uid):
            await world.delete_run()
        assert shared.outstanding == 1


async def test_news_of_a_run_that_is_deleted_while_its_status_cannot_be_written_are_acknowledged():
    async with RunWorld().leader() as world, world.working():
        await world.apply_job()
        made = await world.run_schedule()
        await world.clock.advance(2)
        uid = made["metadata"]["uid"]
        shared = Acknowledgement(when_done=lambda: None, outstanding=2)
        world.runs.states.get(uid).acks.append(shared)

        async def fail(_line, _verdict):
            await world.delete_run()
            raise errors.QueueUnavailable("the API server does not answer")

        world.runs._publisher.writer._write = fail
        world.runs._tasks.put(uid, uid)
        await world.clock.advance(20)
        assert shared.outstanding == 1


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


async def test_the_first_status_of_a_run_whose_write_failed_still_waits_for_no_others():
    """Its first slot waits for it."""
    async with RunWorld(writes_per_second=5).leader() as world, world.working():
        await world.apply()
        names = [f"other-{number}" for number in range(120)]
        for name in names:
            await world.run_schedule(name)
        await world.clock.advance(2)  # they have ended, which statuses of half a minute are to say
        away = kube_errors.Unavailable("PATCH: 503")
        world.api.fail_next(away, verb="PATCH", resource="scheduleruns")
        made = await world.run_schedule()
        await world.clock.advance(3)
        assert sum(world.run_condition("Complete", name) is None for name in names) > 60
        assert [each for each in world.target.fired if each.run_uid == made["metadata"]["uid"]]
