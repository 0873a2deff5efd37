"""The spec of a ScheduleRun, read; what cannot be carried out names its field."""

from __future__ import annotations

import json

import pytest

from duepoint import errors
from duepoint.kube import schedules
from duepoint.schedules.manualruns import Backfill
from tests.support.builders import at

CREATED = at("2026-03-01 12:00:00")
SPAN = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00+01:00"}


def read(**spec):
    raw = json.dumps({"scheduleName": "nightly", **spec}).encode()
    return schedules.wanted(raw, created_us=CREATED)


def test_a_range_has_the_defaults_of_the_api():
    wanted = read(backfill=SPAN)
    assert wanted.slots == Backfill(
        from_us=at("2026-02-01 00:00:00"),
        to_us=at("2026-02-01 23:00:00"),
        asked_us=CREATED,
        max_parallel=5,
        limit=1000,
    )
    assert read(backfill={**SPAN, "order": "NewestFirst"}).slots.newest_first


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, "exactly one"),
        ({"trigger": {}, "backfill": SPAN}, "exactly one"),
        ({"trigger": {"scheduledTime": "tomorrow"}}, "spec.trigger.scheduledTime"),
        ({"trigger": {"scheduledTime": "9999-01-01T00:00:00Z"}}, "1970 and 2112"),
        ({"trigger": {"scheduledTime": "1969-01-01T00:00:00Z"}}, "1970 and 2112"),
        ({"trigger": {"payload": "x" * 65_536}}, "65538 bytes"),
        ({"backfill": {**SPAN, "to": SPAN["from"]}}, "spec.backfill.to"),
        ({"backfill": {"from": SPAN["from"]}}, "to"),
        ({"trigger": 5}, "trigger"),
    ],
)
def test_what_cannot_be_carried_out_names_its_field(spec, told):
    with pytest.raises(errors.InvalidSpec) as caught:
        read(**spec)
    assert told in str(caught.value)
