"""What a claim asks of a worker: every point ends up in exactly one place."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.delayqueue import messages
from duepoint.runs.run import RunState
from duepoint.schedules import definition, points
from duepoint.schedules import rule as rules
from duepoint.schedules.conditions import Reason
from duepoint.schedules.points import DuePoint, PointKind
from duepoint.worker import planning
from tests.support.builders import UID, a_definition, a_rule, at

NOON = at("2026-03-01 12:00:00")
LIMIT_US = 10_000_000
MINUTE_US = 60_000_000


def a_claim(*found: DuePoint, now: int = NOON, **changes) -> messages.Claim:
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


def chain_of(known: definition.Definition, due_us: int = NOON) -> DuePoint:
    return points.chain(known.id, known.timing_version, due_us)


def occurrence_of(known, kind: PointKind, slot_us: int = NOON, **changes) -> DuePoint:
    values = {
        "schedule_id": known.id,
        "timing_version": known.timing_version,
        "kind": kind,
        "due_us": NOON,
        "slot_us": slot_us,
    }
    return DuePoint(**{**values, **changes})


def assign(claim, *known) -> planning.Plan:
    return planning.plan(claim, {one.id: one for one in known}, attempt_limit_us=lambda _: LIMIT_US)


def test_what_a_schedulerun_wanted_of_a_deleted_schedule_is_reported_as_not_run():
    """It saw its slot in a worker's hand, and waits for the worker's word."""
    known = a_definition("*/5 * * * *")
    point = points.manual(known.id, NOON, "run-uid", PointKind.BACKFILL)
    record = messages.OccurrenceRecord(trigger="Backfill", run_uid="run-uid", attempt=1)
    work = assign(a_claim(point, records={point.member: record}))
    assert (work.attempts, work.settlement.finished) == ([], [point.member])
    (news,) = work.settlement.events
    assert (news.run_uid, news.slot_us, news.attempts) == ("run-uid", NOON, 2)
    assert (news.state, news.reason) == (RunState.PENDING, Reason.DELETED)


@pytest.mark.parametrize(
    ("kind", "fires"),
    [
        (PointKind.CHAIN, False),
        (PointKind.PLANNED, False),
        (PointKind.RETRY, True),
        (PointKind.MANUAL, True),
        (PointKind.BACKFILL, True),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, PointKind) else "",
)
def test_an_edit_of_the_timing_supersedes_regular_slots_but_not_their_retries(kind, fires):
    old = a_definition("*/5 * * * *")
    new = msgspec.structs.replace(old, generation=2, timing_generation=2)
    point = chain_of(old) if kind is PointKind.CHAIN else occurrence_of(old, kind)
    work = assign(a_claim(point), new)
    assert bool(work.attempts) is fires
    assert (point.member in work.settlement.finished) is not fires
    if fires:
        assert work.attempts[0][0].definition.generation == 2
    else:
        assert work.settlement.events[0].state is RunState.SUPERSEDED


def test_a_slot_claimed_on_time_runs_again_after_a_death_however_late_it_is_by_then():
    known = a_definition(
        rule=a_rule(
            "*/5 * * * *", policy={"catch_up_policy": "None", "starting_deadline_seconds": 60}
        )
    )
    claim = a_claim(chain_of(known), now=at("2026-03-01 12:02"), first_us=NOON, reclaimed=3)
    ((attempt,),) = assign(claim, known).attempts
    assert (attempt.slot_us, attempt.trigger) == (NOON, "Schedule")
    assert attempt.following.slot_us == at("2026-03-01 12:05")


@pytest.mark.parametrize(
    ("policy", "run", "missed"),
    [
        ({"catch_up_policy": "None"}, [], {Reason.CATCH_UP_POLICY: 12}),
        ({"catch_up_policy": "Latest"}, ["12:55"], {Reason.CATCH_UP_POLICY: 11}),
        (
            {"catch_up_policy": "All", "starting_deadline_seconds": 900},
            ["12:45", "12:50", "12:55"],
            {Reason.DEADLINE_EXCEEDED: 9},
        ),
    ],
    ids=["None", "Latest", "All with a deadline"],
)
def test_a_death_in_recovery_runs_no_slot_that_its_policy_refuses(policy, run, missed):
    """Claimed an hour late by a worker that died of something, and taken over two minutes later."""
    known = a_definition(rule=a_rule("*/5 * * * *", policy=policy))
    late = at("2026-03-01 12:56")
    first = assign(a_claim(chain_of(known), now=late, first_us=late), known)
    again = assign(
        a_claim(chain_of(known), now=late + 120_000_000, first_us=late, reclaimed=1), known
    )
    for work in (first, again):
        tried = [attempt.slot_us for group in work.attempts for attempt in group]
        assert tried == [at(f"2026-03-01 {slot}") for slot in run]
        assert {event.reason: event.count for event in work.settlement.events} == missed


@pytest.mark.parametrize("kind", [PointKind.CHAIN, PointKind.RETRY], ids=["chain", "retry"])
def test_a_one_off_whose_slot_is_poisonous_stays_with_its_dead_letter(kind):
    known = a_definition(
        rule=rules.at_instant(a_rule(rules.ONCE[0]), NOON),
        once_us=NOON,
        namespace="shop",
        owner=points.SetIdentity(UID, "shop", "reminders", 0),
        version=points.TimingVersion(b"vers"),
    )
    point = chain_of(known) if kind is PointKind.CHAIN else occurrence_of(known, kind)
    work = assign(a_claim(point, reclaimed=4, alone=3), known)
    (letter,) = work.settlement.dead
    assert letter.entry["reason"] == Reason.INTERNAL_ERROR
    assert work.settlement.leaving == [(known.id, messages.Leaving.DEAD)]


@pytest.mark.parametrize("kind", [PointKind.MANUAL, PointKind.BACKFILL])
def test_the_age_of_a_run_by_hand_counts_from_when_it_was_wanted(kind):
    known = a_definition("*/5 * * * *")
    point = occurrence_of(known, kind, slot_us=at("2020-01-01 12:00"), due_us=NOON - 7)
    (group,) = assign(a_claim(point), known).attempts
    assert group[0].due_us == NOON - 7
    tried = messages.OccurrenceRecord(attempt=1, first_try_us=NOON - 9, trigger="Backfill")
    (group,) = assign(a_claim(point, records={point.member: tried}), known).attempts
    assert group[0].due_us == NOON - 9


# -- a claim becomes a bounded number of slots ---------------------------------------------------


@pytest.fixture
def everything():
    """Runs what it missed, however much."""
    return a_definition(
        rule=a_rule("* * * * *", policy={"catch_up_policy": "All", "catch_up_limit": 10_000})
    )


def test_look_by_look_every_slot_is_run_once(everything):
    chain = chain_of(everything)
    now = chain.due_us + 1_699 * MINUTE_US
    seen = []
    while chain.due_us <= now:
        (split,) = assign(a_claim(chain, now=now), everything).splits
        seen += [one.point.slot_us for one in split.planned]
        ((_, due_us),) = split.chains
        chain = points.chain(chain.schedule_id, chain.timing_version, due_us)
    first = chain_of(everything).due_us
    assert seen == [first + n * MINUTE_US for n in range(1_700)]


def test_members_of_no_known_format_go_to_the_dead_letters():
    work = assign(a_claim(unknown_members=((b"junk", 5.0),)))
    assert [letter.member for letter in work.settlement.dead] == [b"junk"]
