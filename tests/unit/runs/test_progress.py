"""How far a ScheduleRun has come: whatever is told how often, each slot ends once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duepoint.runs import progress as courses
from duepoint.runs.progress import Progress, Standing
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
        courses.opened(course, slot_us, Standing.HANDED)
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


def test_a_replaced_run_is_counted_as_such():
    course = Progress()
    courses.opened(course, 1, Standing.HANDED)
    courses.applied(course, an_event(1, RunState.REPLACED))
    assert (course.started, course.replaced, course.failed, course.ended) == (1, 1, 0, 1)
    assert course.trouble == ""


def test_an_end_without_a_start_counts_as_both():
    course = Progress()
    courses.opened(course, 1, Standing.HANDED)
    courses.applied(course, an_event(1, RunState.SUCCEEDED, started_us=3, finished_us=9))
    assert (course.started, course.succeeded) == (1, 1)
    assert (course.first_us, course.last_us) == (3, 9)


def test_a_slot_that_never_started_has_failed_without_a_run():
    course = Progress()
    courses.opened(course, 1, Standing.HANDED)
    courses.applied(course, an_event(1, RunState.MISSED))
    assert (course.started, course.failed) == (0, 1)
    assert course.trouble == "1970-01-01T00:00:00.000001Z Because"


def test_old_news_do_not_dispel_a_doubt():
    course = Progress()
    courses.opened(course, 1, Standing.UNKNOWN)
    courses.applied(course, an_event(1, RunState.RUNNING))
    assert course.in_standing(Standing.UNKNOWN) == [1]
