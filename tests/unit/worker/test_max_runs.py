"""maxRuns: no more slots start than it allows, and none is lost to a slot that was missed."""

from __future__ import annotations

import pytest

from duepoint.runs import outcome as outcomes
from duepoint.runs.run import RunState
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import State
from tests.support.builders import JOB_TEMPLATE, a_definition, a_rule, at
from tests.support.workplace import WEBHOOK, a_workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000
JOB = actions.Action(target=actions.JobAction(template=JOB_TEMPLATE))
UNREACHABLE = outcomes.Retry(reason=Reason.NETWORK, message="connection refused")
BAD = outcomes.Rejected(reason=Reason.INVALID_JOB_TEMPLATE, message="no", started=False)


@pytest.fixture
async def place():
    return await a_workplace()


async def limited(place, most, *, period="10s", jobs=True, policy=None, **changes):
    rule = a_rule(f"@every {period}", whole_seconds=jobs, policy=policy, max_runs=most)
    known = a_definition(rule=rule, created_us=NOON, not_before_us=NOON, **changes)
    return await place.arm(known, JOB if jobs else WEBHOOK)


@pytest.mark.parametrize("period", [1, 10, 600])
@pytest.mark.parametrize("jobs", [True, False], ids=["jobs", "webhooks"])
async def test_so_many_slots_start_and_then_the_schedule_is_completed(place, period, jobs):
    known = await limited(place, 3, period=f"{period}s", jobs=jobs)
    async with place.working(place.a_worker(), place.a_worker("worker-b")):
        await place.clock.advance(6 * period + 60)
    assert place.slots_fired() == [NOON + n * period * SECOND for n in (1, 2, 3)]
    stored = await place.definition(known)
    assert (stored.started, stored.state) == (3, State.COMPLETED)
    events = await place.events()
    assert [event.completed for event in events if event.state is not RunState.PENDING][2] is True
    assert sum(event.count for event in events if event.state is RunState.SKIPPED) == 0


async def test_a_slot_whose_job_was_refused_takes_no_run(place):
    known = await limited(place, 2)
    place.target.reply(BAD)
    async with place.working(place.a_worker()):
        await place.clock.advance(100)
    assert place.slots_fired() == [NOON + n * 10 * SECOND for n in (1, 2, 3)]
    assert (await place.definition(known)).started == 2


async def test_of_overdue_slots_no_more_are_caught_up_than_runs_are_left(place):
    known = await limited(place, 3, policy={"catch_up": "All"})
    await place.clock.advance(100)
    async with place.working(place.a_worker()):
        await place.clock.advance(100)
    assert place.slots_fired() == [NOON + n * 10 * SECOND for n in (1, 2, 3)]
    events = await place.events()
    skipped = [event for event in events if event.state is RunState.SKIPPED]
    assert [(event.count, event.reason) for event in skipped] == [(7, Reason.MAX_RUNS)]
    assert (await place.definition(known)).state is State.COMPLETED


async def test_a_slow_target_does_not_make_further_slots_start(place):
    await limited(place, 3, period="1s")
    place.target.hold()
    async with place.working(place.a_worker()):
        await place.clock.advance(5.5)
        assert len(place.slots_fired()) == 3
        place.target.let_go()
        await place.clock.advance(20)
    assert place.slots_fired() == [NOON + n * SECOND for n in (1, 2, 3)]
