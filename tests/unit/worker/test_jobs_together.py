"""A burst of Jobs: created together, each once, and asked for alone where that failed."""

from __future__ import annotations

from duepoint.kube import errors
from duepoint.runs.run import RunState
from duepoint.schedules import actions
from tests.support.builders import a_definition, a_rule
from tests.support.jobworkplace import JOB, NOON, SECOND, JobWorkplace
from tests.support.workplace import EPOCH

COUNT = 150
SLOT_US = NOON + 60 * SECOND


def uid(number: int) -> str:
    return f"6f1c9a34-0000-4000-8000-{number:012}"


async def a_burst(count: int = COUNT, action: actions.Action = JOB) -> JobWorkplace:
    place = JobWorkplace()
    await place.queue.membership.open(1, EPOCH)
    for number in range(count):
        rule = a_rule("@every 1m", whole_seconds=True)
        known = a_definition(
            rule=rule, created_us=NOON, not_before_us=NOON, name=f"s-{number}", uid=uid(number)
        )
        await place.arm(known, action)
    return place


def names(slot_us: int = SLOT_US, count: int = COUNT) -> list[str]:
    return sorted(f"s-{number}-{slot_us // SECOND}" for number in range(count))


async def test_each_slot_of_a_burst_has_one_job_and_one_event():
    place = await a_burst()
    async with place.working(place.a_worker()):
        await place.clock.advance(125)
    assert sorted(place.jobs_there()) == sorted(names() + names(SLOT_US + 60 * SECOND))
    events = await place.events()
    assert len(events) == 2 * COUNT
    assert {event.state for event in events} == {RunState.RUNNING}


async def test_what_gets_no_answer_is_asked_for_alone_and_made_once():
    place = await a_burst()
    place.api.fail_next(errors.Unavailable("cut"), verb="POST", applied=True)
    async with place.working(place.a_worker()):
        await place.clock.advance(70)
    assert sorted(place.jobs_there()) == names()
    made = [event for event in await place.events() if event.state is RunState.RUNNING]
    assert sorted(event.job_name for event in made) == names()
