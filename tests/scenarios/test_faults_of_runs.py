"""ScheduleRuns under faults: every slot runs once, whoever dies and whatever is lost."""

from __future__ import annotations

import collections
import contextlib

import pytest

from duepoint import errors
from duepoint.delayqueue import errors as queue_errors
from duepoint.delayqueue import messages
from duepoint.kube import jobs
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from tests.unit.controller.runworld import NAMESPACE, RunWorld

SLOTS = 24


async def a_backfill(world, *, job=True, **fields):
    apply = world.apply_job if job else world.apply
    await apply(schedule="0 * * * *", **({"successfulJobsHistoryLimit": 100} if job else {}))
    await world.backfill(**{"maxParallel": 4, **fields})


async def to_the_end(world):
    for _ in range(40):
        await world.finish_jobs()
        await world.clock.advance(2)
        if world.run_condition("Complete") or world.run_condition("Failed"):
            return
    raise AssertionError(world.run_status())


def slots_made(world):
    """Return how often a Job was created successfully, by slot."""
    return collections.Counter(world.slots_of_jobs())


@pytest.mark.parametrize("order", ["OldestFirst", "NewestFirst"])
async def test_a_backfill_goes_on_under_the_next_leader_where_it_stopped(order):
    world = RunWorld()
    async with world.working():
        async with world.leader():
            await a_backfill(world, order=order)
            await world.clock.advance(2)
            await world.finish_jobs()
            await world.clock.advance(2)
            assert world.counts()[2] == 4
        async with world.leader(epoch=2):
            await to_the_end(world)
    assert world.counts() == (SLOTS, SLOTS, SLOTS, 0, 0)
    assert set(slots_made(world).values()) == {1}
    assert len(slots_made(world)) == SLOTS


@pytest.mark.parametrize("order", ["OldestFirst", "NewestFirst"])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.11, 0.5, 0.9])
async def test_webhooks_of_a_backfill_are_sent_once_although_leaders_die_at_any_moment(
    seconds, order
):
    world = RunWorld()
    async with world.working():
        async with world.leader():
            await a_backfill(world, job=False, order=order, maxParallel=7)
            await world.clock.advance(seconds)
        for epoch in range(2, 6):
            async with world.leader(epoch=epoch):
                await world.clock.advance(seconds)
        async with world.leader(epoch=9):
            await to_the_end(world)
    fired = collections.Counter(one.slot_us for one in world.target.fired if one.run_uid)
    assert set(fired.values()) == {1}
    assert world.counts() == (SLOTS, SLOTS, SLOTS, 0, 0)


async def test_a_hand_over_without_an_answer_is_not_repeated_before_it_is_known_where_the_slot_is(
    monkeypatch,
):
    world = RunWorld()
    enqueue, lost = world.queue.occurrences.enqueue_many, []

    async def losing(*args, **more):
        answer = await enqueue(*args, **more)
        if len(lost) < 5:
            lost.append(args)
            raise errors.QueueUnavailable("the reply was lost")
        return answer

    async with world.leader(), world.working():
        monkeypatch.setattr(world.queue.occurrences, "enqueue_many", losing)
        await a_backfill(world, job=False)
        await to_the_end(world)
    fired = collections.Counter(one.slot_us for one in world.target.fired if one.run_uid)
    assert len(lost) == 5
    assert (len(fired), set(fired.values())) == (SLOTS, {1})


async def test_an_emptied_index_loses_no_slot_of_a_backfill():
    world = RunWorld()
    async with world.leader():
        await a_backfill(world)
        await world.clock.advance(2)
        world.queue.flush()
        await world.queue.membership.open(world.shards, messages.Epoch(1))
        await world.resync.compare()
        world.runs.request()
        await world.clock.advance(5)
        async with world.working():
            await to_the_end(world)
    assert world.counts() == (SLOTS, SLOTS, SLOTS, 0, 0)
    assert len(slots_made(world)) == SLOTS


async def test_jobs_that_end_while_nobody_leads_are_counted():
    world = RunWorld()
    async with world.working():
        async with world.leader():
            await a_backfill(world)
            await world.clock.advance(2)
        await world.finish_jobs()
        async with world.leader(epoch=2):
            await to_the_end(world)
    assert world.counts() == (SLOTS, SLOTS, SLOTS, 0, 0)


async def test_a_job_deleted_while_nobody_leads_has_failed_and_is_not_made_again():
    world = RunWorld()
    async with world.working():
        async with world.leader():
            await a_backfill(world)
            await world.clock.advance(2)
        gone = world.jobs()[0]["metadata"]["name"]
        await world.api.request("DELETE", jobs.path(NAMESPACE, gone))
        async with world.leader(epoch=2):
            await to_the_end(world)
    assert world.counts() == (SLOTS, SLOTS, SLOTS - 1, 1, 0)
    assert gone not in {job["metadata"]["name"] for job in world.jobs()}
    assert world.run_condition("Failed")["status"] == "True"


async def test_a_scheduled_run_deleted_while_nobody_leads_starts_nothing_more():
    world = RunWorld()
    async with world.leader():
        await a_backfill(world)
        await world.clock.advance(2)
    await world.delete_run()
    async with world.leader(epoch=2):
        await world.clock.advance(2)
        async with world.working():
            await world.clock.advance(30)
    assert world.jobs() == []


@pytest.mark.parametrize("has_leader", [True, False], ids=["with a leader", "nobody leads"])
async def test_a_delivery_that_is_tried_again_ends_with_its_deleted_scheduled_run(has_leader):
    """No worker reports it any more, so the status once listed it as active for ever."""
    world = RunWorld()
    world.target.always_reply(outcomes.Retry(reason=Reason.NETWORK, message="connection refused"))
    async with contextlib.AsyncExitStack() as lead:
        await lead.enter_async_context(world.leader())
        await world.apply(suspend=True)
        await world.run_schedule()
        async with world.working():
            await world.clock.advance(3)
        await world.clock.advance(60)
        assert world.status()["activeCount"] == 1
        if not has_leader:
            await lead.aclose()
        await world.delete_run()
        if not has_leader:
            await lead.enter_async_context(world.leader(epoch=2))
        await world.clock.advance(30)
        assert "activeCount" not in world.status()
        counts = world.status()["runs"]
        assert (counts["started"], counts["failed"]) == (1, 1)
        assert world.status()["lastRun"]["reason"] == "Deleted"


async def test_a_former_leader_hands_nothing_over():
    world = RunWorld()
    async with world.leader():
        await a_backfill(world, job=False, maxParallel=1)
        await world.queue.membership.open(world.shards, messages.Epoch(5))
        (task,) = [one for one in world.running if "ScheduleRuns.run" in repr(one)]
        async with world.working():
            await world.clock.advance(5)
        assert len(world.target.fired) <= 1
        group = task.exception()
        assert group is not None
        assert group.subgroup(queue_errors.Fenced) is not None
        world.running.remove(task)


async def test_an_edit_of_the_timing_counts_from_the_next_slot_on():
    async with RunWorld().leader() as world, world.working():
        await a_backfill(world, maxParallel=1)
        for _ in range(3):
            await world.clock.advance(2)
            await world.finish_jobs()
        await world.apply_job(schedule="30 */6 * * *", successfulJobsHistoryLimit=100)
        await to_the_end(world)
        made = [slot[11:16] for slot in world.slots_of_jobs()]
    assert made[:3] == ["00:00", "01:00", "02:00"]
    assert made[-3:] == ["06:30", "12:30", "18:30"]
    assert world.counts()[0] == len(made) == world.counts()[2]
