from __future__ import annotations

import dataclasses

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duepoint import errors
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
    seal=st.text(max_size=40),
)


@given(RECORDS)
def test_what_was_packed_is_unpacked(record):
    assert records.unpack(records.pack(record)) == record


def test_the_stored_form_stays_as_it_was():
    packed = records.pack(messages.OccurrenceRecord(attempt=2, first_try_us=300, last_error="X"))
    assert packed.hex() == "960102cd012ca85363686564756c65a0a158"


def test_no_record_is_that_of_a_first_attempt():
    assert records.unpack(b"") == messages.OccurrenceRecord()


@given(RECORDS, st.lists(st.integers() | st.text(max_size=5), min_size=1, max_size=4))
def test_fields_that_a_later_version_appends_are_ignored(record, more):
    record = dataclasses.replace(record, replayed_us=record.replayed_us or 1)  # every known field
    written = msgspec.msgpack.decode(records.pack(record))
    limited = [one if isinstance(one, str) else one % 2**31 for one in more]
    assert records.unpack(msgspec.msgpack.encode([*written, *limited])) == record


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


def test_a_record_of_another_format_is_no_record():
    packed = records.pack(messages.OccurrenceRecord(attempt=2))
    with pytest.raises(records.UnknownFormat):
        records.unpack(b"\x96\x02" + packed[2:])


@pytest.mark.parametrize("due", [-1, points.DUE_LIMIT_US, 2**63])
def test_a_due_that_could_be_taken_for_a_claim_is_never_stored(due):
    with pytest.raises(errors.Bug):
        records.checked_due(due)


@pytest.mark.parametrize("due", [0, points.DUE_LIMIT_US - 1])
def test_the_dues_at_the_borders_are_stored(due):
    assert records.checked_due(due) == due
