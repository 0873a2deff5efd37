"""On a server that went back: what waits to be compared, and how it is judged afterwards."""

from __future__ import annotations

import dataclasses

import pytest

from duepoint.delayqueue import messages
from duepoint.runs.run import RunState
from duepoint.schedules import points
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.worker import planning, runlimits
from tests.support.builders import a_definition, a_rule, at

NOON = at("2026-03-01 12:00:00")
MINUTE_US = 60_000_000
BACK = NOON + 150_000_000  # two and a half minutes later


def a_claim(*found: DuePoint, now: int = BACK, **changes) -> messages.Claim:
    return messages.Claim(
        id=messages.ClaimId(b"c" * 12),
        shard=messages.ShardId(0),
        points=found,
        reclaimed=changes.pop("reclaimed", 0),
        now_us=now,
        token_us=now,
        held_until=0.0,
        **changes,
    )


def chain_of(known, due_us: int = NOON) -> DuePoint:
    return points.chain(known.id, known.timing_version, due_us)


def assign(claim, known, **changes) -> planning.Plan:
    return planning.plan(claim, {known.id: known}, attempt_limit_us=lambda _: 0, **changes)


def a_held(known, *, now: int = BACK + MINUTE_US, **record):
    point = DuePoint(
        schedule_id=known.id,
        timing_version=known.timing_version,
        kind=PointKind.HELD,
        due_us=now,
        slot_us=NOON,
    )
    values = {"back_us": BACK, "from_us": NOON, **record}
    return a_claim(
        point, now=now, records={point.member: messages.OccurrenceRecord(**values)}
    ), point


def slots_of(work):
    return [attempt.slot_us for group in work.attempts for attempt in group]


@pytest.mark.parametrize("reclaimed", [0, 1], ids=["fresh", "reclaimed"])
def test_a_chain_in_doubt_goes_on_after_it_and_leaves_a_held_point(reclaimed):
    known = a_definition("* * * * *")
    work = assign(a_claim(chain_of(known), back_us=BACK, reclaimed=reclaimed), known)
    assert not work.attempts
    (chain,) = work.chains
    assert chain.due_us == NOON + 3 * MINUTE_US
    (held,) = work.held
    assert (held.point.kind, held.point.slot_us) == (PointKind.HELD, NOON)
    assert held.point.due_us == points.HELD_US
    assert held.source == chain.member
    assert (held.record.from_us, held.record.back_us) == (NOON, BACK)
    (told,) = work.events
    assert (told.state, told.reason, told.slot_us) == (
        RunState.PENDING, Reason.REDIS_WENT_BACK, NOON,
    )  # fmt: skip


def test_a_chain_that_is_due_after_the_doubt_is_fired_as_ever():
    known = a_definition("* * * * *")
    later = NOON + 3 * MINUTE_US
    work = assign(a_claim(chain_of(known, later), now=later, back_us=BACK), known)
    assert slots_of(work) == [later]
    assert not work.held


def test_the_last_slot_of_a_schedule_waits_and_its_chain_ends():
    known = a_definition("@at 2026-03-01T12:00:00Z")
    work = assign(a_claim(chain_of(known), back_us=BACK), known)
    assert [held.point.slot_us for held in work.held] == [NOON]
    assert work.ended == [known.id]
    assert not any(event.completed for event in work.events)


def test_a_chain_with_counted_runs_waits_as_a_whole():
    known = a_definition(rule=a_rule("* * * * *", max_runs=5))
    work = assign(a_claim(chain_of(known), back_us=BACK), known, runs_left={known.id: 5})
    assert [chain.due_us for chain in work.chains] == [points.HELD_US]
    assert len(work.held) == 1


def test_slots_that_have_not_ended_are_judged_as_of_the_doubt():
    known = a_definition(rule=a_rule("* * * * *", policy={"catch_up": "All"}))
    claim, point = a_held(known, now=BACK + 3600_000_000)
    work = assign(claim, known)
    assert slots_of(work) == [NOON, NOON + MINUTE_US, NOON + 2 * MINUTE_US]
    (planning,) = work.splits
    assert planning.chain == point
    assert planning.next_due_us is None
    assert [one.point.kind for one in planning.slots] == [PointKind.PLANNED] * 3


def test_a_slot_that_was_on_time_at_the_doubt_runs_under_none():
    known = a_definition(rule=a_rule("* * * * *", policy={"catch_up": "None"}))
    on_time = NOON + 2 * MINUTE_US + 5_000_000
    claim, _ = a_held(known, from_us=NOON + 2 * MINUTE_US, back_us=on_time)
    assert slots_of(assign(claim, known)) == [NOON + 2 * MINUTE_US]


def test_slots_that_a_policy_leaves_out_are_missed_once():
    known = a_definition(rule=a_rule("* * * * *", policy={"catch_up": "Latest"}))
    claim, _ = a_held(known)
    work = assign(claim, known)
    assert slots_of(work) == [NOON + 2 * MINUTE_US]
    assert [(e.state, e.count) for e in work.events] == [(RunState.MISSED, 2)]


def test_slots_that_have_ended_are_neither_run_nor_missed():
    known = a_definition(rule=a_rule("* * * * *", policy={"catch_up": "Latest"}))
    claim, _ = a_held(known, ended_us=(NOON + MINUTE_US,))
    work = assign(claim, known)
    assert slots_of(work) == [NOON + 2 * MINUTE_US]
    assert [(e.state, e.count) for e in work.events] == [(RunState.MISSED, 1)]


def test_slots_that_ended_once_and_are_lost_with_the_server_are_not_missed():
    known = a_definition(rule=a_rule("* * * * *", policy={"catch_up": "None"}))
    claim, point = a_held(known, settled_us=NOON + 2 * MINUTE_US)
    work = assign(claim, known)
    assert not work.events
    assert work.finished == [point.member]


def test_a_held_point_becomes_no_more_slots_at_a_time_than_a_claim_may_have():
    known = a_definition(
        rule=a_rule("@every 1s", policy={"catch_up": "All", "catch_up_limit": 10_000})
    )
    claim, point = a_held(known, back_us=NOON + 600_000_000)
    work = assign(claim, known)
    (split,) = work.splits
    assert len(slots_of(work)) == runlimits.MOST_PLANNED
    assert split.next_due_us == claim.now_us
    rest = split.slots[-1]
    assert rest.point == point
    assert rest.record.from_us == slots_of(work)[-1] + 1_000_000
    (told,) = [event for event in work.opened if event]
    assert told.more_us[-1] == rest.record.from_us


def test_an_edit_of_the_timing_supersedes_what_waits():
    known = a_definition("* * * * *")
    claim, _ = a_held(known)
    (held,) = claim.points
    old = dataclasses.replace(held, timing_version=points.TimingVersion(b"old!"))
    work = assign(a_claim(old), known)
    assert work.finished == [old.member]
    assert [event.state for event in work.events] == [RunState.SUPERSEDED]
