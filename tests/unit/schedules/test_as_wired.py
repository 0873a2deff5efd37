"""The rules of timing as a user meets them: through the operator's and the worker's own ways.

Virtual time, a target that records; the pure rules are tested beside this.
"""

from __future__ import annotations

import pytest

from duepoint.schedules import definition
from duepoint.schedules import rule as rules
from tests.support.builders import a_definition, at
from tests.support.workplace import a_workplace

NOON = at("2026-03-01 12:00:00")
SECOND = 1_000_000


def held(*texts: str, policy: dict | None = None, **timing) -> definition.Definition:
    rule = rules.Rule(
        timing=rules.Timing(schedules=texts, **timing), policy=rules.Policy(**(policy or {}))
    )
    return a_definition(rule=rule, created_us=NOON, not_before_us=NOON)


def clocks(slots_us: list[int]) -> list[int]:
    """Seconds after noon."""
    return [(slot_us - NOON) // SECOND for slot_us in slots_us]


async def fired_within(seconds: float, *known: definition.Definition, asleep: float = 0):
    """What a worker fires that looks after some seconds in which none did."""
    place = await a_workplace()
    for each in known:
        await place.arm(each)
    await place.clock.advance(asleep)
    async with place.working(place.a_worker()):
        await place.clock.advance(seconds)
    return place


@pytest.mark.parametrize(
    ("policy", "fired", "missed"),
    [
        ({"catch_up": "Latest"}, [100], {"CatchUpPolicy": 9}),
        ({"catch_up": "All"}, [*range(10, 101, 10)], {}),
        ({"catch_up": "All", "catch_up_limit": 3}, [80, 90, 100], {"CatchUpLimit": 7}),
        ({"catch_up": "None"}, [100], {"CatchUpPolicy": 9}),
        (
            {"catch_up": "All", "deadline_seconds": 35},
            [70, 80, 90, 100],
            {"DeadlineExceeded": 6},
        ),
        (
            {"catch_up": "Latest", "deadline_seconds": 1},
            [],
            {"DeadlineExceeded": 10},
        ),
    ],
    ids=["latest", "all", "all-limited", "none", "deadline", "over-the-deadline"],
)
async def test_after_an_outage_the_policy_chooses_and_the_rest_is_told(policy, fired, missed):
    place = await fired_within(4, held("@every 10s", policy=policy), asleep=105)
    assert clocks(place.slots_fired()) == fired
    told: dict[str, int] = {}
    for event in await place.events():
        if event.state.name == "MISSED":
            told[event.reason] = told.get(event.reason, 0) + event.count
    assert told == missed
