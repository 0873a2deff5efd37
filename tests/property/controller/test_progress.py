"""Progress of a run by events in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.controller.scheduleruns import runstatus as courses
from duepoint.controller.scheduleruns.runstatus import Progress, RunSlot
from duepoint.runs.run import RunEvent, RunState

STATES = [
    RunState.RUNNING,
    RunState.SUCCEEDED,
    RunState.FAILED,
    RunState.REPLACED,
    RunState.REPLACING,
    RunState.MISSED,
    RunState.SKIPPED,
    RunState.PENDING,
]


def an_event(slot_us: int, state: RunState, **changes) -> RunEvent:
    values = {
        "uid": "u", "namespace": "n", "name": "nightly", "generation": 1, "slot_us": slot_us,
        "trigger": "Backfill", "state": state, "reason": "Because", "at_us": slot_us + 5,
    }  # fmt: skip
    return RunEvent(**{**values, **changes})


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(STATES)), max_size=60))
def test_every_slot_ends_once_and_nothing_is_counted_twice(told):
    course = Progress()
    for slot_us in range(1, 6):
        course.cursor_us, course.open[slot_us] = slot_us, RunSlot()
    ended: set[int] = set()
    succeeded = 0
    for slot_us, state in told:
        is_news = courses.applied(course, an_event(slot_us, state))
        assert not (slot_us in ended and is_news)
        if slot_us not in ended:
            succeeded += state is RunState.SUCCEEDED
        if state not in (RunState.RUNNING, RunState.PENDING, RunState.REPLACING):
            ended.add(slot_us)
        assert course.ended == len(ended)
        assert set(course.open) == set(range(1, 6)) - ended
        assert course.opened == 5
        assert course.succeeded == succeeded
        assert course.started <= 5
