from __future__ import annotations

import pytest

from duepoint import errors
from duepoint.delayqueue import messages
from duepoint.delayqueue.definitions import records
from duepoint.schedules import points


def test_a_record_of_another_format_is_no_record():
    packed = records.pack(messages.OccurrenceRecord(attempt=2))
    with pytest.raises(records.UnknownFormat):
        records.unpack(b"\x96\x02" + packed[2:])


@pytest.mark.parametrize("due", [-1, points.DUE_LIMIT_US, 2**63])
def test_a_due_that_could_be_taken_for_a_claim_is_never_stored(due):
    with pytest.raises(errors.Bug):
        records.checked_due(due)


def test_a_request_without_an_answer_is_remembered_beside_everything_else():
    record = messages.OccurrenceRecord(
        attempt=2, payload=b"{}", signature="s", replayed_us=5, unanswered_us=7
    )
    assert records.unpack(records.pack(record)) == record
