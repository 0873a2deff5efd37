"""Concurrency policies as a worker carries them out, in virtual time, with an API server."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from duepoint import telemetry
from duepoint.runs import outcome as outcomes
from duepoint.runs.run import RunEvent, RunState
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from tests.support.jobworkplace import DOWN, JobWorkplace, name
from tests.support.workplace import EPOCH, WEBHOOK

STREAM = actions.Action(target=actions.StreamAction(name="events", max_length=100))
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")


@pytest.fixture
async def place():
    made = JobWorkplace()
    await made.queue.membership.open(4, EPOCH)
    return made


# -- Forbid ------------------------------------------------------------------------------------


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


# -- Replace -----------------------------------------------------------------------------------


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
