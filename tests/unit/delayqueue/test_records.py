from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint import errors
from duepoint.delayqueue import messages, records
from duepoint.schedules import points

RECORDS = st.builds(
    messages.OccurrenceRecord,
    attempt=st.integers(0, 1000),
    first_try_us=st.integers(0, points.DUE_LIMIT_US),
    trigger=st.sampled_from(["Schedule", "CatchUp", "Manual", "Backfill"]),
    run_uid=st.text(max_size=40),
    last_error=st.text(max_size=40),
)


@given(RECORDS)
def test_what_was_packed_is_unpacked(record):
    assert records.unpack(records.pack(record)) == record


def test_the_stored_form_stays_as_it_was():
    packed = records.pack(messages.OccurrenceRecord(attempt=2, first_try_us=300, last_error="X"))
    assert packed.hex() == "960102cd012ca85363686564756c65a0a158"


@given(st.binary(max_size=60))
def test_a_record_that_cannot_be_read_counts_as_a_first_attempt(data):
    assert isinstance(records.unpack(data), messages.OccurrenceRecord)


def test_a_record_of_another_format_counts_as_a_first_attempt():
    packed = records.pack(messages.OccurrenceRecord(attempt=2))
    assert records.unpack(b"\x96\x02" + packed[2:]) == messages.OccurrenceRecord()


@pytest.mark.parametrize("due", [-1, points.DUE_LIMIT_US, 2**63])
def test_a_due_that_could_be_taken_for_a_claim_is_never_stored(due):
    with pytest.raises(errors.Bug):
        records.checked_due(due)


@pytest.mark.parametrize("due", [0, points.DUE_LIMIT_US - 1])
def test_the_dues_at_the_borders_are_stored(due):
    assert records.checked_due(due) == due
