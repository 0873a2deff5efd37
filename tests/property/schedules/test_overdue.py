"""Whatever is overdue and however late it is looked at, each slot ends in exactly one way."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from duepoint.schedules import policies, slots
from tests.support.builders import CREATED_US, a_rule, at

SECOND = 1_000_000
POLICIES = st.fixed_dictionaries(
    {
        "catch_up_policy": st.sampled_from(["Latest", "All", "None"]),
        "catch_up_limit": st.integers(1, 50),
        "starting_deadline_seconds": st.one_of(st.none(), st.integers(0, 1500)),
    }
)


@given(
    period=st.sampled_from(["@every 7s", "*/5 * * * *", "0 9,10 * * *", "@every 100ms"]),
    late_seconds=st.integers(0, 2000),
    policy=POLICIES,
    jitter_ms=st.sampled_from([0, 50, 30_000]),
)
def test_every_overdue_slot_ends_in_exactly_one_way(period, late_seconds, policy, jitter_ms):
    rule = a_rule(period, policy=policy, jitter_ms=jitter_ms)
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    first = timeline.next_after(at("2026-03-01 12:00:00"))
    now_us = first.due_us + late_seconds * SECOND
    decision = policies.decide(timeline, rule.policy, chain_due_us=first.due_us, now_us=now_us)
    ran = [one.slot_us for one in decision.run]
    overdue = [
        slot
        for slot in timeline.walk(first.slot_us - 1, now_us)
        if timeline.due_slot(slot).due_us <= now_us
    ]
    assert len(decision.run) + sum(group.count for group in decision.missed) == len(overdue)
    assert set(ran) <= set(overdue)
    assert ran == sorted(ran)
    assert decision.following.slot_us > overdue[-1]
    assert decision.following.due_us > now_us


@given(
    period=st.sampled_from(["@every 7s", "*/5 * * * *", "@every 100ms"]),
    late_seconds=st.integers(0, 200),
    back=st.integers(0, 60),
    policy=POLICIES,
    jitter_ms=st.sampled_from([0, 50, 30_000]),
)
@example("@every 100ms", 0, 101, {"catch_up_policy": "None"}, 0)
def test_a_slot_is_refused_alone_as_it_would_be_as_the_oldest_of_a_chain(
    period, late_seconds, back, policy, jitter_ms
):
    rule = a_rule(period, policy=policy, jitter_ms=jitter_ms)
    timeline = slots.for_rule(rule, identity="default/report", created_us=CREATED_US)
    newest_us = timeline.newest_due(at("2026-03-01 12:00:00"))
    slot_us = [newest_us, *itertools.islice(timeline.walk_back(newest_us, 0), back)][-1]
    now_us = timeline.due_slot(newest_us).due_us + late_seconds * SECOND
    due_us = timeline.due_slot(slot_us).due_us
    decision = policies.decide(timeline, rule.policy, chain_due_us=due_us, now_us=now_us)
    refusal = policies.refusal(timeline, rule.policy, slot_us=slot_us, now_us=now_us)
    if slot_us in {one.slot_us for one in decision.run}:
        assert refusal is None
    else:
        assert refusal is next(
            group.reason for group in decision.missed if slot_us <= group.newest_us
        )
