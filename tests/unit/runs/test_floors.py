"""What a process counts again, or not, of what its predecessor had read."""

from __future__ import annotations

import dataclasses

from duepoint.runs import summary as summaries
from duepoint.runs.history import MOST
from duepoint.runs.run import RunState
from duepoint.runs.watermark import Watermark
from tests.unit.runs.test_summary import S, event, folded, restarted


def a_start(slot: int, **changes):
    return event(slot, RunState.RUNNING, job_name=f"job-{slot}", settled_us=slot * S, **changes)


def seen_to_run(slot: int):
    """As the Job's watch says it, which moves no watermark."""
    return event(slot, RunState.RUNNING, job_name=f"job-{slot}", job_uid="uid", settled_us=0)


def test_a_start_between_those_that_the_last_slots_show_was_not_counted():
    """A Job that is gone before its start is read is seen by no watch."""
    before = restarted(folded(a_start(100), seen_to_run(200), seen_to_run(400)))
    assert folded(a_start(200), into=before, replayed=True).counts.started == 3
    assert folded(a_start(300), into=before, replayed=True).counts.started == 4
    assert folded(a_start(300), into=before).counts.started == 4


def test_where_the_last_slots_do_not_reach_back_the_newest_start_decides():
    later = [seen_to_run(slot) for slot in range(400, 400 + MOST)]
    before = restarted(folded(a_start(100), *later))
    assert folded(a_start(300), into=before, replayed=True).counts == before.counts


def test_an_end_that_the_last_slots_show_is_not_counted_when_it_is_read_as_a_new_entry():
    """A server that went back has forgotten who had read what."""
    before = restarted(folded(event(100), event(200, settled_us=0)))
    assert folded(event(200), into=before).counts == before.counts
    assert folded(event(300), into=before).counts.succeeded == 3


def test_an_end_that_the_last_slots_lack_is_counted_although_a_later_run_ended_before():
    before = restarted(folded(event(100), event(300, settled_us=0)))
    late = event(200, settled_us=0, finished_us=250 * S)
    assert folded(late, into=before, replayed=True).counts.succeeded == 3


def test_a_slot_that_was_open_and_is_skipped_counts_when_its_entry_is_read_again():
    shown = folded(event(100), event(300))
    before = summaries.loaded(
        dataclasses.replace(shown, recent=()),
        Watermark(through_us=300 * S, waiting_us=(200 * S,)),
    )
    skipped = event(200, RunState.SKIPPED, settled_us=200 * S)
    after = folded(skipped, into=before, replayed=True)
    assert after.counts.skipped == 1
    assert folded(skipped, into=restarted(after), replayed=True).counts.skipped == 1
