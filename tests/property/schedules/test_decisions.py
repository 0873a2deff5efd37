"""The decision about overdue slots is the one that plain loops come to."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from duepoint import expressions
from duepoint.controller import plan
from duepoint.controller.status.published import Status
from duepoint.schedules import policies, slots
from duepoint.schedules import rule as rules
from duepoint.schedules.definition import State
from duepoint.schedules.diagnosis import Shown
from tests.property.expressions import generators
from tests.property.schedules import naive
from tests.support.builders import CREATED_US, a_spec, at

IDENTITY = "default/report"
TEXTS = (
    *("@every 7s", "@every 100ms", "@every 1m30s", "*/5 * * * *", "* * * * *", "0 9,10 * * *"),
    *("*/20 * * * * *", "30 12 1 3 *", "@at 2026-03-01T12:07:00Z", "@hourly", "59 11,12,13 * * *"),
)
START_US = at("2026-03-01 12:00:00")

policy_fields = st.fixed_dictionaries(
    {
        "catch_up_policy": st.sampled_from(("Latest", "All", "None")),
        "catch_up_limit": st.integers(1, 130),
        "starting_deadline_seconds": st.none()
        | st.sampled_from((0, 1, 9, 60, 600))
        | st.integers(0, 4_000),
    }
)
timings = st.builds(
    lambda texts, jitter_ms: rules.Timing(schedules=tuple(texts), jitter_ms=jitter_ms),
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4),
    st.sampled_from((0, 0, 50, 20_000, 3_600_000)),
)


def all_slots(timing: rules.Timing, after_us: int, through_us: int) -> list[int]:
    """The slots of each text walked alone, and one slot beyond the end of the span."""
    found, beyond = set(), []
    for text in timing.schedules:
        expression = expressions.compile_expression(
            text, time_zone=timing.time_zone, anchor_us=CREATED_US
        )
        at_us = expression.next_after(after_us)
        while at_us is not None and at_us <= through_us:
            found.add(at_us)
            at_us = expression.next_after(at_us)
        if at_us is not None:
            beyond.append(at_us)
    return sorted(found) + ([min(beyond)] if beyond else [1 << 52])


@settings(max_examples=generators.samples(250), deadline=None, derandomize=True)
@given(
    timing=timings,
    policy=policy_fields,
    late_us=st.integers(0, 20 * naive.SECOND) | st.integers(0, 4_000 * naive.SECOND),
)
def test_every_overdue_slot_ends_as_the_loops_say(timing, policy, late_us):
    rule = rules.Rule(timing=timing, policy=rules.Policy(**policy))
    timeline = slots.for_rule(rule, identity=IDENTITY, created_us=CREATED_US)
    first = timeline.next_after(START_US)
    if first is None or first.slot_us > START_US + 10**11:
        return
    now_us = first.due_us + late_us
    known = naive.due_slots(
        all_slots(timing, START_US, now_us), identity=IDENTITY, jitter_ms=timing.jitter_ms
    )
    overdue = [slot for slot in known if slot.due_us <= now_us]
    run, missed = naive.judged(
        overdue,
        now_us,
        catch_up=policy["catch_up_policy"],
        limit=policy["catch_up_limit"],
        deadline_seconds=policy["starting_deadline_seconds"],
    )
    decision = policies.decide(timeline, rule.policy, chain_due_us=first.due_us, now_us=now_us)
    assert [one.slot_us for one in decision.run] == run
    assert Counter({group.reason.value: group.count for group in decision.missed}) == missed
    assert all(one.due_us >= one.slot_us for one in decision.run)
    assert decision.newest_us == overdue[-1].slot_us
    late = [one for one in decision.run if len(overdue) > 1 or now_us - one.due_us > 10**7]
    assert [one for one in decision.run if one.catch_up] == late
    if decision.following is not None:
        assert decision.following.due_us > now_us
        assert decision.following.slot_us == all_slots(timing, decision.newest_us, 0)[0]


class Life:
    """One Schedule from its creation on, driven by its operator's and its worker's decisions."""

    def __init__(self, timing: rules.Timing, policy: dict) -> None:
        self._fields = {
            "schedules": list(timing.schedules),
            "jitter": f"{timing.jitter_ms}ms",
            "catchUpPolicy": policy["catch_up_policy"],
            "catchUpLimit": policy["catch_up_limit"]
            if policy["catch_up_policy"] == "All"
            else None,
            "startingDeadlineSeconds": policy["starting_deadline_seconds"],
        }
        self._generation = 0
        self._stored = None
        self._chain_us: int | None = None
        self.policy = policy
        self.run: list[int] = []
        self.missed: Counter[str] = Counter()
        self.skipped = 0
        self.apply(CREATED_US, suspend=False)

    def apply(self, now_us: int, **fields) -> None:
        """What the operator does with an edit."""
        self._generation += 1
        self._fields |= fields
        spec = msgspec.structs.replace(a_spec(**self._fields), generation=self._generation)
        shown = (
            Status()
            if self._stored is None
            else Status(observed_generation=1, conditions=[Shown(type="Ready", status="False")])
        )
        made = plan.decide(spec, self._stored, shown, now_us, target="digest")
        self._stored = made.definition
        self.skipped += made.skipped
        self.missed["Past"] += made.missed
        if made.arming is not None and not made.arming.keep_chain:
            self._chain_us = made.arming.due_us

    def wake(self, now_us: int) -> None:
        """What the worker does when it looks."""
        timeline = plan.slots_of(self._stored)
        while self._chain_us is not None and self._chain_us <= now_us:
            assert self._stored.state is State.ARMED
            decision = policies.decide(
                timeline, self._stored.rule.policy, chain_due_us=self._chain_us, now_us=now_us
            )
            self.run += [one.slot_us for one in decision.run]
            self.missed.update({group.reason.value: group.count for group in decision.missed})
            self._chain_us = decision.following and decision.following.due_us


@st.composite
def lives(draw):
    """Steps of a Schedule's life: seconds that pass, and what happens then."""
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(1, 120) | st.integers(1, 3_000),
                st.sampled_from(("wake", "wake", "suspend", "resume", "edit-policy")),
            ),
            min_size=1,
            max_size=8,
        )
    )
    return draw(timings), draw(policy_fields), steps


@settings(max_examples=generators.samples(150), deadline=None, derandomize=True)
@given(lives())
def test_a_life_of_outages_and_suspensions_is_the_one_that_the_loops_tell(life):
    timing, policy, steps = life
    schedule, now_us = Life(timing, policy), CREATED_US
    expected_run, expected_missed, expected_skipped = [], Counter(), 0
    settled_us, suspended_us = CREATED_US, None
    end_us = CREATED_US + sum(seconds for seconds, _ in steps) * naive.SECOND
    every = all_slots(timing, CREATED_US, end_us + 4_000 * naive.SECOND)
    known = naive.due_slots(every, identity=IDENTITY, jitter_ms=timing.jitter_ms)
    for seconds, what in steps:
        now_us += seconds * naive.SECOND
        if what == "wake":
            schedule.wake(now_us)
            if suspended_us is None:
                overdue = [s for s in known if settled_us < s.slot_us and s.due_us <= now_us]
                run, missed = naive.judged(
                    overdue,
                    now_us,
                    catch_up=policy["catch_up_policy"],
                    limit=policy["catch_up_limit"],
                    deadline_seconds=policy["starting_deadline_seconds"],
                )
                expected_run += run
                expected_missed += missed
                settled_us = max([settled_us, *(slot.slot_us for slot in overdue)])
        elif what == "edit-policy":
            schedule.apply(now_us, successfulJobsHistoryLimit=seconds)  # moves nothing
        elif (what == "suspend") == (suspended_us is None):
            schedule.apply(now_us, suspend=what == "suspend")
            if what == "suspend":
                suspended_us = now_us
            else:
                expected_skipped += sum(suspended_us < s.slot_us <= now_us for s in known)
                suspended_us = None
            settled_us = now_us  # an edit of the timing never runs a slot of the past
    assert schedule.run == expected_run
    assert schedule.missed == expected_missed
    assert schedule.skipped == expected_skipped
    assert len(set(schedule.run)) == len(schedule.run)
