"""A claim becomes a bounded number of slots, and nothing is lost by the bound."""

from __future__ import annotations

import pytest

from duepoint.runs.run import RunState
from duepoint.schedules import points
from duepoint.worker import runlimits
from tests.support.builders import a_definition, a_rule
from tests.unit.worker.test_planning import a_claim, assign, chain_of

MINUTE_US = 60_000_000


def _overdue(known, slots, count=1):
    """A claim of so many chains of one schedule's kind, each so many slots behind."""
    first = chain_of(known)
    claim = a_claim(first, now=first.due_us + (slots - 1) * MINUTE_US)
    return claim if count == 1 else a_claim(*[first] * count, now=claim.now_us)


@pytest.fixture
def everything():
    """Runs what it missed, however much."""
    return a_definition(
        rule=a_rule("* * * * *", policy={"catch_up": "All", "catch_up_limit": 10_000})
    )


def test_a_chain_far_behind_runs_a_part_and_stays_due(everything):
    work = assign(_overdue(everything, 2_000), everything)
    (split,) = work.splits
    assert len(split.slots) == runlimits.MOST_PLANNED
    last = split.slots[-1].point.slot_us
    assert split.next_due_us == last + MINUTE_US
    assert [event for event in work.events if event.state is RunState.MISSED] == []


def test_look_by_look_every_slot_is_run_once(everything):
    chain = chain_of(everything)
    now = chain.due_us + 1_699 * MINUTE_US
    seen = []
    while chain.due_us <= now:
        (split,) = assign(a_claim(chain, now=now), everything).splits
        seen += [one.point.slot_us for one in split.slots]
        chain = points.chain(chain.schedule_id, chain.timing_version, split.next_due_us)
    first = chain_of(everything).due_us
    assert seen == [first + n * MINUTE_US for n in range(1_700)]


def test_what_the_limit_leaves_out_is_told_of_once():
    known = a_definition(
        rule=a_rule("* * * * *", policy={"catch_up": "All", "catch_up_limit": 600})
    )
    chain = chain_of(known)
    now = chain.due_us + 999 * MINUTE_US
    missed, ran = 0, 0
    while chain.due_us <= now:
        work = assign(a_claim(chain, now=now), known)
        (split,) = work.splits
        missed += sum(event.count for event in work.events if event.state is RunState.MISSED)
        ran += len(split.slots)
        chain = points.chain(chain.schedule_id, chain.timing_version, split.next_due_us)
    assert (ran, missed) == (600, 400)


def test_many_chains_share_what_a_claim_may_become(everything):
    work = assign(_overdue(everything, 100, count=50), everything)
    assert sum(len(one.slots) for one in work.splits) == runlimits.MOST_PLANNED
    assert {len(one.slots) for one in work.splits} == {10}
