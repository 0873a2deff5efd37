"""A retry that had to go because too many others wait: what is told of it names the real cause."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.schedules import points

CAUSE = "hooks.example.com: cannot be reached: Connection refused"
RECORD = messages.OccurrenceRecord(
    attempt=3, first_try_us=5, last_error="Network", last_cause=CAUSE
)


def a_retry(record=RECORD):
    point = points.DuePoint(
        schedule_id=points.schedule_id("uid", "team"),
        timing_version=b"\0\0\0\1",
        kind=points.PointKind.RETRY,
        due_us=10,
        slot_us=7,
    )
    return messages.Occurrence(point=point, record=record, open_limit=0, origin={"name": "call"})


def test_the_letter_of_a_retry_that_had_to_go_names_the_last_real_cause():
    entry = records.buried_entry(a_retry())
    assert entry["reason"] == "Network"
    assert entry["message"] == (
        "more than 100 slots of this schedule were being tried again; the last try: " + CAUSE
    )
