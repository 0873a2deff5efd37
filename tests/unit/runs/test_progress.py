"""How far a ScheduleRun has come: whatever is told how often, each slot ends once."""

from __future__ import annotations

from duepoint.runs import progress as courses
from duepoint.runs.progress import Progress, Standing
from duepoint.runs.run import RunEvent, RunState


def an_event(slot_us: int, state: RunState, **changes) -> RunEvent:
    values = {
        "uid": "u", "namespace": "n", "name": "nightly", "generation": 1, "slot_us": slot_us,
        "trigger": "Backfill", "state": state, "reason": "Because", "at_us": slot_us + 5,
    }  # fmt: skip
    return RunEvent(**{**values, **changes})


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
