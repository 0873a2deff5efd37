"""The stored record: inverse, small, careful about what it cannot read; many say what each says."""

from __future__ import annotations

import os

import pytest

from duepoint.delayqueue.definitions import codec, columns
from duepoint.schedules import definition
from tests.support.builders import a_definition, a_record, at

CREATED = at("2026-03-01 11:00:00")


def _record(number=0, **changed):
    known = a_definition(
        "0 * * * *", created_us=CREATED + number * 1_000_000, name=changed.pop("name", "a"),
        uid=f"6f1c9a34-0000-4000-8000-{number:012}", **changed,
    )  # fmt: skip
    return known, a_record(known, namespace=3, target=300, rule=70_000 + number)


def test_scripts_find_format_state_and_version_where_they_look_for_them():
    suspended = a_definition(state=definition.State.SUSPENDED)
    record = a_record(suspended, namespace=1, target=1, rule=1)
    assert record[0] == codec.FORMAT
    assert record[1] == definition.State.SUSPENDED
    assert record[codec.VERSION] == suspended.timing_version


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_truncated_record_is_refused(cut):
    record = a_record(a_definition(), namespace=1, target=1, rule=1)
    with pytest.raises(codec.UnknownRecord):
        codec.unpack(record[:-cut])


def test_a_record_of_a_later_format_is_refused():
    record = a_record(a_definition(), namespace=1, target=1, rule=1)
    with pytest.raises(codec.UnknownRecord):
        codec.unpack(bytes([codec.FORMAT + 1]) + record[1:])


def test_bytes_at_random_never_raise():
    usual = _record()[1]
    for cut in range(len(usual)):
        noise = usual[:cut] + os.urandom(len(usual) - cut)
        found = columns.columns([noise, usual], [noise[3:7], usual[3:7]])
        assert list(found.indexes)[-1] == 1
