"""Concurrency policies as a worker carries them out, in virtual time, with an API server."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from duepoint import telemetry
from duepoint.kube import jobbuilder
from duepoint.runs import outcome as outcomes
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from tests.support.jobworkplace import DOWN, JOB, SECOND, JobWorkplace, name
from tests.support.workplace import EPOCH, WEBHOOK

STREAM = actions.Action(target=actions.StreamAction(name="events", max_length=100))
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")


@pytest.fixture
async def place():
    made = JobWorkplace()
    await made.queue.membership.open(4, EPOCH)
    return made


# -- Forbid ------------------------------------------------------------------------------------


async def test_a_slot_is_skipped_for_good_while_a_job_runs(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(25)
        await place.end(10)
        await place.clock.advance(4)
        assert place.jobs_there() == [name(10)]  # what was skipped stays skipped
        await place.clock.advance(2)
    assert place.jobs_there() == [name(10), name(30)]
    assert await place.told() == [
        (10, RunState.RUNNING, Reason.CREATED),
        (20, RunState.SKIPPED, Reason.CONCURRENCY_FORBIDDEN),
        (30, RunState.RUNNING, Reason.CREATED),
    ]


async def test_a_job_that_ended_while_nobody_watched_holds_nobody_up(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.api.end_job("default", name(10))
        await place.clock.advance(10)
    assert place.jobs_there() == [name(10), name(20)]


async def test_several_may_run_where_the_limit_says_so(place):
    await place.schedule("Forbid", also={"max_concurrency": 3})
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(62)
    assert place.jobs_there() == [name(10), name(20), name(30)]


async def test_two_workers_that_catch_up_start_no_more_than_may_run(place):
    await place.schedule("Forbid", also={"catch_up": "All"})
    await place.clock.advance(55)
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(1)
    assert place.jobs_there() == [name(10)]
    skipped = [slot for slot, state, _ in await place.told() if state is RunState.SKIPPED]
    assert skipped == [20, 30, 40, 50]


async def test_a_slot_is_not_skipped_unless_the_jobs_can_be_looked_at(place):
    await place.schedule("Forbid")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.api.end_job("default", name(10))
        for _ in range(3):
            place.api.fail_next(DOWN, verb="GET")
        await place.clock.advance(17)
    told = await place.told()
    assert (20, RunState.RUNNING, Reason.CREATED) in told
    assert not [one for one in told if one[1] is RunState.SKIPPED]


async def test_a_worker_that_dies_with_a_slot_let_in_leaves_no_run_behind(place):
    await place.schedule("Forbid", WEBHOOK)
    place.webhooks.hold()
    async with place.working(place.a_worker()):
        await place.clock.advance(10.5)
        assert place.fired() == [10]
    place.webhooks.let_go()  # the worker was killed in the middle of it
    async with place.working(place.a_worker("b")):
        await place.clock.advance(22)
    assert place.fired() == [10, 10, 30] or place.fired() == [10, 10, 20, 30]


async def test_a_webhook_s_slot_is_skipped_while_another_delivery_is_tried(place):
    await place.schedule("Forbid", WEBHOOK)
    place.webhooks.reply(UNREACHABLE, UNREACHABLE, UNREACHABLE)
    async with place.working(place.a_worker()):
        await place.clock.advance(10.5)
        place.webhooks.always_reply(UNREACHABLE)
        await place.clock.advance(10)
    assert set(place.fired()) == {10}
    assert (20, RunState.SKIPPED, Reason.CONCURRENCY_FORBIDDEN) in await place.told()


# -- Replace -----------------------------------------------------------------------------------


async def test_the_newer_job_takes_the_place_of_the_one_that_runs(place):
    await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(31)
    assert place.jobs_there() == [name(30)]
    states = [(slot, state) for slot, state, _ in await place.told()]
    running, replacing = RunState.RUNNING, RunState.REPLACING
    assert states == [
        (10, running),
        (10, replacing),
        (20, running),
        (20, replacing),
        (30, running),
    ]


async def test_what_is_replaced_is_told_before_it_is_deleted(place, monkeypatch):
    """Who sees the deletion, finds the word of it already there, whoever dies in between."""
    known = await place.schedule("Replace")
    before: list[list[RunEvent]] = []
    delete = place.jobs.delete

    async def delete_later(*asked: str) -> None:
        before.append(await place.events())
        await delete(*asked)

    monkeypatch.setattr(place.jobs, "delete", delete_later)
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.jobs_there() == [name(20)]
    (told,) = [one for one in before[0] if one.state is RunState.REPLACING]
    assert (told.uid, told.job_name, told.reason) == (known.uid, name(10), Reason.REPLACED)
    assert told.message == "the slot of 2026-03-01T12:00:20Z took its place"


async def test_a_finished_job_is_not_replaced(place):
    await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        place.api.end_job("default", name(10))
        await place.clock.advance(10)
    assert place.jobs_there() == [name(10), name(20)]


async def test_nothing_starts_where_the_former_job_cannot_be_deleted(place):
    await place.schedule("Replace", schedule="@every 60s")
    async with place.working(place.a_worker()):
        await place.clock.advance(61)
        for _ in range(2):
            place.api.fail_next(DOWN, verb="DELETE")
        await place.clock.advance(59.2)
        assert place.jobs_there() == [name(60)]
        await place.clock.advance(20)
    assert place.jobs_there() == [name(120)]


async def test_a_slot_whose_job_exists_already_replaces_nothing(place):
    known = await place.schedule("Replace", schedule="@every 60s")
    async with place.working(place.a_worker()):
        await place.clock.advance(61)
    before = place.api.stored("jobs", "default", name(60))
    place.queue.flush()
    await place.queue.membership.open(4, EPOCH)
    await place.arm(known, JOB)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(5)
    assert place.api.stored("jobs", "default", name(60)) == before


@pytest.mark.parametrize("newer", ["active", "over", "not made"])
async def test_a_replaced_job_is_not_made_again_after_redis_lost_everything(place, newer):
    """It was deleted in favour of a newer one, and the last status written has it as started."""
    known = await place.schedule("Replace")
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.jobs_there() == [name(20)]
    if newer == "over":
        place.api.end_job("default", name(20))
    elif newer == "not made":  # its worker died in between
        await place.jobs.delete("default", known.name, known.uid, name(20))
    await place.lose_redis()
    await place.rearm_started(known, 10, settled=20 if newer != "not made" else 10)
    async with place.working(place.a_worker("b")):
        await place.clock.advance(5)
    assert place.jobs_there() == [name(20)]
    assert [one for one in await place.told() if one[0] == 10] == [
        (10, RunState.SKIPPED, Reason.REPLACED)
    ]


async def test_the_retries_of_a_replaced_delivery_end_as_a_replaced_run(place):
    await place.schedule("Replace", WEBHOOK)
    place.webhooks.reply(outcomes.Retry(reason=Reason.NETWORK, message="x", after_us=60 * SECOND))
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.fired() == [10, 20]
    told = await place.told()
    assert (10, RunState.REPLACED, Reason.REPLACED) in told
    assert (20, RunState.SUCCEEDED, Reason.SUCCEEDED) in told


async def test_a_delivery_under_way_is_not_cut_by_the_one_that_replaces_it(place):
    await place.schedule("Replace", WEBHOOK, schedule="@every 2s")
    place.webhooks.hold()
    async with place.working(place.a_worker()):
        await place.clock.advance(4.5)
        place.webhooks.let_go()
        await place.clock.advance(0.1)
    assert place.fired() == [2, 4]
    ended = [state for _, state, _ in await place.told() if state is not RunState.RUNNING]
    assert ended == [RunState.SUCCEEDED] * 2


class _SlowJobs:
    """An API server whose first answer to a POST is late, while the Job is not there yet."""

    def __init__(self, target_: target.Target) -> None:
        self._target = target_
        self.open = asyncio.Event()
        self.began = 0

    async def fire(self, firing: target.Firing) -> outcomes.Outcome:
        self.began += 1
        if self.began == 1:
            await self.open.wait()
        return await self._target.fire(firing)


async def test_a_job_that_comes_into_being_after_it_was_replaced_goes(place):
    await place.schedule("Replace", schedule="@every 2s")
    slow = _SlowJobs(place.target.job)
    place.target = dataclasses.replace(place.target, job=slow)
    async with place.working(place.a_worker()):
        await place.clock.advance(4.5)
        assert place.jobs_there() == [name(4)]
        slow.open.set()
        await place.clock.advance(0.2)
        assert place.jobs_there() == [name(4)]
        await place.clock.advance(1.6)
        assert place.jobs_there() == [name(6)]


# -- Queue -------------------------------------------------------------------------------------


async def test_a_waiting_slot_starts_when_the_active_job_ends_and_keeps_its_time(place):
    await place.schedule("Queue")
    async with place.working(place.a_worker()):
        await place.clock.advance(25)
        assert place.jobs_there() == [name(10)]
        await place.end(10)
        await place.clock.advance(0.1)
        assert place.jobs_there() == [name(10), name(20)]
    job = place.api.stored("jobs", "default", name(20))
    assert job["metadata"]["annotations"][jobbuilder.SCHEDULED_TIME] == "2026-03-01T12:00:20Z"


async def test_waiting_is_no_lateness(place):
    await place.schedule("Queue")

    def count() -> float:
        (histogram,) = telemetry.start_lateness_seconds.collect()
        return next(s.value for s in histogram.samples if s.name.endswith("_count"))

    async with place.working(place.a_worker()):
        await place.clock.advance(11)
        before = count()
        await place.clock.advance(14)
        await place.end(10)
        await place.clock.advance(0.1)
        assert place.active() == [name(20)]
    assert count() == before


async def test_beyond_the_limit_the_oldest_waiting_slot_is_skipped(place):
    await place.schedule("Queue")
    async with place.working(place.a_worker()):
        await place.clock.advance(35)
        await place.end(10)
        await place.clock.advance(0.1)
    assert place.jobs_there() == [name(10), name(30)]
    assert (20, RunState.SKIPPED, Reason.QUEUE_FULL) in await place.told()


async def test_waiting_slots_start_in_their_order(place):
    await place.schedule("Queue", also={"queue_limit": 10})
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(41)
        for slot in (10, 20, 30):
            assert place.active() == [name(slot)]
            await place.end(slot)
            await place.clock.advance(0.1)
        assert place.active() == [name(40)]


async def test_without_anybody_to_tell_of_it_a_waiting_slot_finds_the_end_by_itself(place):
    await place.schedule("Queue", schedule="@every 5m")
    async with place.working(place.a_worker()):
        await place.clock.advance(605)
        assert place.active() == [name(300)]
        place.api.end_job("default", name(300))
        await place.clock.advance(31)
        assert place.active() == [name(600)]


async def test_a_waiting_slot_is_missed_once_its_deadline_has_passed(place):
    await place.schedule("Queue", schedule="@every 5m", also={"deadline_seconds": 45})
    async with place.working(place.a_worker()):
        await place.clock.advance(646)
        assert (600, RunState.MISSED, Reason.DEADLINE_EXCEEDED) in await place.told()
        await place.end(300)
        await place.clock.advance(1)
    assert place.jobs_there() == [name(300)]


async def test_a_timing_edit_supersedes_what_waits(place):
    known = await place.schedule("Queue", schedule="@every 5m")
    async with place.working(place.a_worker()):
        await place.clock.advance(605)
        edited = msgspec.structs.replace(
            known,
            generation=2,
            timing_generation=2,
            rule=dataclasses_replace_rule(known.rule, "@every 7m"),
            not_before_us=place.clock.now_us(),
        )
        place.known = await place.arm(edited, JOB)
        await place.end(300)
        await place.clock.advance(1)
    assert place.jobs_there() == [name(300)]
    assert (600, RunState.SUPERSEDED, Reason.STALE_VERSION) in await place.told()


def dataclasses_replace_rule(rule, schedule):
    import msgspec

    timing = msgspec.structs.replace(rule.timing, schedules=(schedule,))
    return msgspec.structs.replace(rule, timing=timing)


async def test_deliveries_queue_one_behind_the_other(place):
    await place.schedule("Queue", WEBHOOK, schedule="@every 2s", also={"queue_limit": 5})
    place.webhooks.hold()
    async with place.working(place.a_worker("a"), place.a_worker("b")):
        await place.clock.advance(6.5)
        assert place.fired() == [2]
        place.webhooks.let_go()
        await place.clock.advance(0.5)
    assert place.fired() == [2, 4, 6]


async def test_a_slot_that_cannot_be_judged_waits_in_the_queue(place):
    await place.schedule("Queue", schedule="@every 5m")
    async with place.working(place.a_worker()):
        await place.clock.advance(301)
        place.api.fail_next(DOWN, verb="GET")
        await place.clock.advance(300)
        assert place.jobs_there() == [name(300)]
        place.api.end_job("default", name(300))
        await place.clock.advance(31)
    assert place.jobs_there() == [name(300), name(600)]


# -- whom it does not concern --------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Forbid", "Replace", "Queue"])
async def test_a_stream_s_entries_end_at_once_and_no_policy_holds_them_up(
    place, monkeypatch, policy
):
    async def never(*_):
        raise AssertionError("a stream was judged")

    monkeypatch.setattr(place.queue.concurrency, "admit", never)
    await place.schedule(policy, STREAM)
    async with place.working(place.a_worker()):
        await place.clock.advance(31)
    assert place.fired() == [10, 20, 30]
