"""Concurrency policies as a worker carries them out, in virtual time, with an API server."""

from __future__ import annotations

import pytest

from duepoint.runs.run import RunState
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome as outcomes
from tests.support.jobworkplace import DOWN, SECOND, JobWorkplace, name
from tests.support.workplace import EPOCH, WEBHOOK


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
    assert (20, RunState.RUNNING, Reason.RUNNING) in told
    assert not [one for one in told if one[1] is RunState.SKIPPED]


# -- Replace -----------------------------------------------------------------------------------


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


# -- Queue -------------------------------------------------------------------------------------


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


async def test_the_retries_of_a_replaced_delivery_end_as_a_replaced_run(place):
    await place.schedule("Replace", WEBHOOK)
    place.webhooks.reply(outcomes.Retry(reason=Reason.NETWORK, message="x", after_us=60 * SECOND))
    async with place.working(place.a_worker()):
        await place.clock.advance(21)
    assert place.fired() == [10, 20]
    told = await place.told()
    assert (10, RunState.REPLACED, Reason.REPLACED) in told
    assert (20, RunState.SUCCEEDED, Reason.SUCCEEDED) in told
