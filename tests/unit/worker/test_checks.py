"""Points at which nothing is fired: what a definition refers to is looked at, and told."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.delayqueue import messages
from duepoint.runs.run import RunState
from duepoint.schedules import definition, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import target
from tests.support.builders import a_definition, at
from tests.support.workplace import EPOCH, a_workplace

NOON = at("2026-03-01 12:00:00")
MISSING = target.Trouble(reason=Reason.SECRET_UNAVAILABLE, message="spec.webhook...: not there")


@pytest.fixture
async def place():
    return await a_workplace()


async def armed(place, *, generation=1) -> definition.Definition:
    known = a_definition("@every 1h", created_us=NOON, not_before_us=NOON)
    known = await place.arm(msgspec.structs.replace(known, generation=generation))
    await ask(place, known, generation)
    return known


async def ask(place, known, generation):
    check = points.check(known.id, known.timing_version, generation)
    await place.queue.occurrences.enqueue(
        known, check, messages.OccurrenceRecord(trigger="Check"), EPOCH
    )


async def told(place):
    return [(one.state, one.reason, one.message) for one in await place.events()]


async def test_what_only_an_edit_mends_is_not_looked_at_again(place):
    await armed(place)
    place.target.found = target.Trouble(
        reason=Reason.INVALID_SPEC, message="not allowed", final=True
    )
    async with place.working(place.a_worker()):
        await place.clock.advance(100)
    assert await told(place) == [(RunState.CHECKED, "InvalidSpec", "not allowed")]


async def test_a_check_of_an_older_generation_says_nothing(place):
    known = await armed(place)
    newer = msgspec.structs.replace(known, generation=2)
    arming = messages.Arming(definition=newer, due_us=None, keep_chain=True)
    from duepoint.schedules import actions
    from tests.support.workplace import WEBHOOK

    await place.queue.writer.upsert([(arming, actions.encode(WEBHOOK))], EPOCH)
    await ask(place, newer, 2)
    async with place.working(place.a_worker()):
        await place.clock.advance(100)
    assert [one.generation for one in await place.events()] == [2]
