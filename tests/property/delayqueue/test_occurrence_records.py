"""Records of occurrences come back as they were packed; what is cut or foreign is told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.schedules import points

RECORDS = st.builds(
    messages.OccurrenceRecord,
    attempt=st.integers(0, 1000),
    first_try_us=st.integers(0, points.DUE_LIMIT_US),
    trigger=st.sampled_from(["Schedule", "CatchUp", "Manual", "Backfill"]),
    run_uid=st.text(max_size=40),
    last_error=st.text(max_size=40),
    concurrency=st.sampled_from(["", "Allow", "Queue"]),
    payload=st.binary(max_size=40),
    signature=st.text(max_size=40),
    replayed_us=st.integers(0, points.DUE_LIMIT_US),
    last_cause=st.text(max_size=40),
    unanswered_us=st.integers(0, points.DUE_LIMIT_US),
)


@given(RECORDS)
def test_what_was_packed_is_unpacked(record):
    assert records.unpack(records.pack(record)) == record


@given(st.binary(min_size=1, max_size=60))
def test_bytes_that_are_no_record_are_told_apart(data):
    try:
        found = records.unpack(data)
    except records.UnknownFormat:
        found = messages.OccurrenceRecord()
    assert records.unpack_or_first(data) == found


@given(RECORDS, st.data())
def test_a_truncated_record_is_no_record(record, data):
    packed = records.pack(record)
    cut = packed[: data.draw(st.integers(1, len(packed) - 1))]
    with pytest.raises(records.UnknownFormat):
        records.unpack(cut)
