"""maxRuns: no more slots start than it allows, and none is lost to a slot that was missed."""

from __future__ import annotations

import pytest

from duepoint.runs.run import RunState
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.schedules.definition import State
from tests.support.builders import JOB_TEMPLATE, a_definition, a_rule, at
from tests.support.workplace import WEBHOOK, a_workplace

NOON = at("2026-03-01 12:00:00")


SECOND = 1_000_000


JOB = actions.Action(target=actions.job_of(JOB_TEMPLATE))


@pytest.fixture
async def place():
    return await a_workplace()


async def limited(place, most, *, period="10s", jobs=True, policy=None, **changes):
    rule = a_rule(f"@every {period}", whole_seconds=jobs, policy=policy, max_runs=most)
    known = a_definition(rule=rule, created_us=NOON, not_before_us=NOON, **changes)
    return await place.arm(known, JOB if jobs else WEBHOOK)


async def test_of_overdue_slots_no_more_are_caught_up_than_runs_are_left(place):
    known = await limited(place, 3, policy={"catch_up_policy": "All"})
    await place.clock.advance(100)
    async with place.working(place.a_worker()):
        await place.clock.advance(100)
    assert place.slots_fired() == [NOON + n * 10 * SECOND for n in (1, 2, 3)]
    events = await place.events()
    skipped = [event for event in events if event.state is RunState.SKIPPED]
    assert [(event.count, event.reason) for event in skipped] == [(7, Reason.COMPLETED)]
    assert (await place.definition(known)).state is State.COMPLETED
