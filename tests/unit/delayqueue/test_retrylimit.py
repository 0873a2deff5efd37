"""A retry that had to go because too many others wait: what is told of it names the real cause."""

from __future__ import annotations

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.runs import run
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


def test_the_run_event_of_a_retry_that_had_to_go_names_it_too():
    occurrence = a_retry()
    packed = records.buried_event(
        {**records.buried_entry(occurrence), "given_up_us": "9"},
        occurrence.point.member,
        records.pack(occurrence.record),
    )
    (event,) = run.unpack(packed)
    assert (event.state, event.reason) == (run.RunState.FAILED, "Network")
    assert event.message.endswith(CAUSE)


def test_without_a_cause_in_words_the_reason_is_named():
    known = messages.OccurrenceRecord(attempt=1, last_error="QuotaExceeded")
    assert records.buried_entry(a_retry(known))["message"].endswith("; the last try: QuotaExceeded")
