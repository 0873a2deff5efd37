"""How many Jobs a worker holds: enough for its connections, claimed many at a time."""

from __future__ import annotations

import contextlib

from duepoint.worker import jobline

PLACES = 8
IN_HAND = 4 * PLACES


def a_line() -> jobline.JobLine:
    return jobline.JobLine(PLACES)


def test_until_the_first_job_the_room_is_the_usual_one():
    assert a_line().room(1000) == 1000


def test_jobs_made_together_take_room_until_each_has_ended():
    line = a_line()
    with line.together(IN_HAND) as note_end:
        assert line.room(1000) == 0
        for _ in range(PLACES):
            note_end()
        assert line.room(1000) == PLACES
    assert line.room(1000) == IN_HAND


def test_room_for_a_few_is_no_room_yet():
    line = a_line()
    with line.together(IN_HAND - PLACES + 1):
        assert line.room(1000) == 0


def test_a_batch_that_breaks_off_gives_its_room_back():
    line = a_line()
    with contextlib.suppress(RuntimeError), line.together(IN_HAND) as note_end:
        note_end()
        raise RuntimeError
    assert line.length == 0
