"""What is decided for a batch must be what is decided for each point alone."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.delayqueue import messages
from duepoint.delayqueue.claims import chaincolumns
from duepoint.delayqueue.definitions import codec, columns, kinds, lanes
from duepoint.schedules import actions, points, slots
from duepoint.schedules import rule as rules
from duepoint.worker import planner, planning
from tests.support.builders import UID, a_definition, a_rule, at

SECOND = 1_000_000
CREATED = at("2026-03-01 11:00:00")
NOON = at("2026-03-01 12:00:00")
LIMIT_US = 5 * SECOND
ACTION = actions.Action(target=actions.StreamAction(name="events"))

SCHEDULES = [
    "* * * * *",
    "0 * * * *",
    "@every 1s",
    "@every 5s",
    "@every 7s",
    "@every 1m",
    "@hourly",
]
LATE_SECONDS = [0, 0.3, 4.9, 9.9, 10.1, 59.9, 60.0, 61.0, 300.0]
POLICIES = [
    {},
    {"catch_up_policy": "None"},
    {"catch_up_policy": "All"},
    {"starting_deadline_seconds": 0},
    {"starting_deadline_seconds": 30},
]


def _known(schedule, policy, **rule):
    return a_definition(schedule, created_us=CREATED, rule=a_rule(schedule, policy=policy, **rule))


def _due(schedule, policy):
    """A definition, and its chain at the first slot from noon on."""
    known = _known(schedule, policy)
    timeline = slots.for_rule(known.rule, identity=known.identity, created_us=known.created_us)
    due_us = timeline.next_after(NOON - 1).due_us
    return known, points.chain(known.id, known.timing_version, due_us)


def _alone(known, chain, now_us, limit_us=LIMIT_US):
    claim = messages.Claim(
        id=messages.ClaimId(b"x" * 12), shard=messages.ShardId(0), points=(chain,), reclaimed=0,
        now_us=now_us, token_us=0, held_until=0.0,
    )  # fmt: skip
    return planning.plan(claim, {known.id: known}, attempt_limit_us=lambda _: limit_us)


def _together(known, chain, now_us, limit_us=LIMIT_US):
    """The ordinary points among this one."""
    return _batches([known], [chain], now_us, limit_us)


def _without_instant(rule):
    timing = msgspec.structs.replace(rule.timing, schedules=rules.ONCE)
    return msgspec.structs.replace(rule, timing=timing)


def _batches(known, chains, now_us, limit_us=LIMIT_US):
    """The ordinary points among these, whose definitions stand in their order."""
    listed = [
        kinds.Kind(
            lanes.of_schedule(one.namespace, one.owner),
            one.namespace,
            one.owner,
            one.target,
            rules.text(one.rule if one.once_us is None else _without_instant(one.rule)),
        )
        for one in known
    ]
    found = columns.Columns(
        range(len(known)),
        [one.uid for one in known],
        [one.name for one in known],
        [one.generation for one in known],
        [one.created_us for one in known],
        range(len(known)),
        dict(enumerate(listed)),
        [one.once_us for one in known] if any(one.once_us for one in known) else (),
        [codec.OwnParts(one.once_us, one.payload, one.payload_mac) for one in known]
        if any(one.payload for one in known)
        else (),
    )
    action = ACTION if not limit_us else actions.Action(
        target=actions.WebhookAction(url="http://x", timeout_seconds=limit_us / SECOND)
    )  # fmt: skip
    outlines = {(one.namespace, one.target): action for one in listed}
    claimed = chaincolumns.of(chains)
    return planner.batches(found, claimed, outlines, lambda one: one is ACTION, now_us)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("policy", POLICIES, ids=["latest", "none", "all", "zero", "deadline"])
def test_a_slot_fired_together_is_the_one_that_would_be_fired_alone(schedule, policy):
    known, chain = _due(schedule, policy)
    due_us = chain.due_us
    for late in LATE_SECONDS:
        now_us = due_us + int(late * SECOND)
        batches = _together(known, chain, now_us)
        if not batches:
            continue
        ((attempt,),) = _alone(known, chain, now_us).attempts
        (batch,) = batches
        assert attempt.is_chain  # it is not split
        assert (batch.slots_us, batch.following, batch.trigger) == (
            [attempt.slot_us], [attempt.following.due_us], attempt.trigger,
        )  # fmt: skip
        assert attempt.due_us == attempt.slot_us
        assert not attempt.completes
        ((same,),) = batch.attempts()
        for name in ("slot_us", "due_us", "previous_us", "trigger", "following", "number"):
            assert getattr(same, name) == getattr(attempt, name)
        assert same.point.member == chain.member


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("policy", POLICIES, ids=["latest", "none", "all", "zero", "deadline"])
def test_the_oldest_overdue_slot_is_appended_where_all_of_them_run(schedule, policy):
    known, chain = _due(schedule, policy)
    due_us = chain.due_us
    for late in LATE_SECONDS:
        now_us = due_us + int(late * SECOND)
        plan = _alone(known, chain, now_us, limit_us=0)
        attempts = [one for sequence in plan.attempts for one in sequence]
        batches = _together(known, chain, now_us, limit_us=0)
        assert bool(batches) == (bool(attempts) and not plan.settlement.events)
        if not batches or len(attempts) == 1:
            continue
        (batch,) = batches
        oldest, following, *_ = attempts
        assert batch.slots_us == [oldest.slot_us]
        assert batch.previous_us == [oldest.previous_us]
        assert batch.following == [following.due_us]
        assert batch.trigger == oldest.trigger
        assert batch.members == [chain.member]
        assert planner.left(1, batches) == []


@pytest.mark.parametrize(
    "rule",
    [
        a_rule("H * * * *"),
        a_rule("0 * * * *", jitter_ms=1000),
        a_rule("0 * * * *", policy={"concurrency_policy": "Forbid"}),
        a_rule("@every 1s"),
        a_rule("@at 2026-03-01T12:00:00Z"),
    ],
    ids=["hash", "jitter", "a policy", "next slot too near", "last slot"],
)
def test_what_is_not_ordinary_is_planned_alone(rule):
    known = a_definition("* * * * *", created_us=CREATED, rule=rule)
    chain = points.chain(known.id, known.timing_version, NOON)
    assert _together(known, chain, NOON + 1000) == []
    assert _one_off_together(_one_off({}, end_us=NOON + SECOND), NOON) == []  # it has bounds


def test_a_batch_has_its_own_rows_only_beside_one_another_or_not():
    ordinary, chain = _due("* * * * *", {})
    other, _ = _due("* * * * *", {"concurrency_policy": "Forbid"})
    for known, rows in (
        ([ordinary] * 2, [0, 1]),
        ([ordinary, ordinary, other, ordinary], [0, 1, 3]),
    ):
        (batch,) = _batches(known, [chain] * len(known), chain.due_us)
        assert list(batch.indexes) == rows


OWNER = points.SetIdentity(UID, "shop", "reminders", 0)


def _one_off(policy, **rule):
    shared = a_rule(rules.ONCE[0], policy=policy, **rule)
    return a_definition(
        created_us=CREATED, rule=rules.at_instant(shared, NOON), once_us=NOON, namespace="shop",
        owner=OWNER, version=points.TimingVersion(b"vers"), payload=b'{"n":1}',
        payload_mac=b"8 bytes!",
    )  # fmt: skip


def _one_off_together(known, now_us):
    return _batches([known], [points.chain(known.id, known.timing_version, NOON)], now_us)


@pytest.mark.parametrize("policy", POLICIES, ids=["latest", "none", "all", "zero", "deadline"])
@pytest.mark.parametrize("late", LATE_SECONDS)
def test_a_one_off_is_fired_together_exactly_where_it_would_be_fired_alone(policy, late):
    known = _one_off(policy)
    now_us = NOON + int(late * SECOND)
    chain = points.chain(known.id, known.timing_version, NOON)
    alone = _alone(known, chain, now_us).attempts
    batches = _one_off_together(known, now_us)
    assert bool(batches) == bool(alone)
    if not batches:
        return
    ((attempt,),), (batch,) = alone, batches
    assert (batch.following, list(batch.payloads)) == ([None], [b'{"n":1}'])
    ((same,),) = batch.attempts()
    for name in ("slot_us", "due_us", "previous_us", "trigger", "following", "completes"):
        assert getattr(same, name) == getattr(attempt, name)
    assert same.point == attempt.point
    for name in ("rule", "payload", "payload_mac", "once_us", "owner", "id", "timing_version"):
        assert getattr(same.definition, name) == getattr(known, name)
