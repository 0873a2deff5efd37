"""The rules of timing as a user meets them: through the operator's and the worker's own ways.

Virtual time, a target that records; the pure rules are tested beside this.
"""

from __future__ import annotations

import pytest

from duepoint.schedules import definition, slots
from duepoint.schedules import rule as rules
from tests.support.builders import a_definition, a_rule, at
from tests.support.workplace import a_workplace
from tests.unit.controller.world import World

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


async def test_times_that_coincide_fire_once():
    place = await fired_within(61, held("@every 20s", "@every 30s", "* * * * *"))
    assert clocks(place.slots_fired()) == [20, 30, 40, 60]


async def test_upcoming_times_name_each_instant_once():
    async with World().leader() as world:
        await world.apply(schedule=None, schedules=["0 * * * *", "*/30 * * * *", "@hourly"])
        assert [time[11:16] for time in world.status()["upcomingTimes"]] == [
            *("12:30", "13:00", "13:30", "14:00", "14:30")
        ]


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


async def test_a_slot_with_jitter_fires_at_its_due_and_keeps_its_own_time():
    known = held("@every 30s", jitter_ms=20_000)
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=NOON)
    place = await fired_within(91, known)
    dues = [timeline.due_slot(slot_us) for slot_us in timeline.upcoming(NOON, 5)]
    expected = [due.slot_us for due in dues if due.due_us <= NOON + 91 * SECOND]
    assert len(expected) in {2, 3}
    assert place.slots_fired() == expected
    for event in await place.events():
        assert event.started_us >= timeline.due_slot(event.slot_us).due_us


async def test_nothing_fires_before_the_start_and_at_or_after_the_end():
    window = {"start_us": NOON + 25 * SECOND, "end_us": NOON + 65 * SECOND}
    place = await fired_within(200, held("@every 20s", **window))
    assert clocks(place.slots_fired()) == [25, 45]
    known = await place.definition(held("@every 20s", **window))
    assert known.state is definition.State.COMPLETED


async def test_an_end_in_the_past_is_completed():
    async with World().leader() as world:
        await world.apply(endTime="2026-02-01T00:00:00Z")
        assert world.ready() == ("True", "Completed")


async def test_an_edit_after_an_outage_fires_nothing_of_the_past():
    async with World().leader() as world:
        uid = (await world.apply(schedule="0 * * * *"))["metadata"]["uid"]
        await world.clock.advance(2 * 3_600 + 600)  # 14:10, and no worker has looked
        await world.apply(schedule="5 * * * *")
        assert world.chain_due_us(uid) == at("2026-03-01 15:05:00")


async def test_a_one_shot_in_the_past_runs_only_when_a_deadline_covers_it():
    async with World().leader() as world:
        await world.apply("late", schedule="@at 2026-03-01T11:00:00Z")
        assert world.ready("late") == ("True", "Completed")
        assert world.status("late")["runs"]["missed"] == 1
        made = await world.apply(
            "covered", schedule="@at 2026-03-01T11:00:00Z", startingDeadlineSeconds=7_200
        )
        assert world.chain_due_us(made["metadata"]["uid"]) == at("2026-03-01 11:00:00")


@pytest.mark.parametrize(
    ("fields", "reason", "told"),
    [
        ({"schedule": "*/61 * * * *"}, "InvalidSchedule", 'did you mean "@every 61m"?'),
        ({"schedule": "0 0 31 2 *"}, "NeverFires", "no time in the next 8 years"),
        ({"schedule": "@every 1000000000h"}, "OutOfRange", "beyond the year 2112"),
        ({"timeZone": "Europe/Berln"}, "UnknownTimeZone", 'did you mean "Europe/Berlin"?'),
        ({"schedule": "@evrey 5m"}, "InvalidSchedule", 'did you mean "@every 5m"'),
    ],
    ids=["step", "never", "beyond", "zone", "macro"],
)
async def test_a_bad_schedule_is_stalled_with_field_and_hint(fields, reason, told):
    async with World().leader() as world:
        await world.apply(**fields)
        stalled = world.condition("Stalled")
        assert (stalled["status"], stalled["reason"]) == ("True", reason)
        assert stalled["message"].startswith("spec.")
        assert told in stalled["message"]


def test_the_builders_of_this_file_make_the_rules_of_the_others():
    assert held("@every 1m").rule == a_rule("@every 1m")
