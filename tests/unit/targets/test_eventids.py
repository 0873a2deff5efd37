"""What a receiver recognises a slot by, and what it is told."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from duepoint.targets import target
from duepoint.targets.webhook import request
from tests.support import builders, firings

SLOT_US = firings.SLOT_US


def _standard_body(firing, now_us):
    return request.Composer(firings.a_webhook(), None).compose(firing, now_us)[1]


def _raw_body(firing):
    return request.Composer(firings.a_webhook(format="Raw"), None).compose(firing, SLOT_US)[1]


def test_webhook_ids_differ_by_schedule_slot_and_run():
    ids = {
        target.webhook_id(uid, slot_us, run_uid)
        for uid in ("a", "b")
        for slot_us in (SLOT_US, SLOT_US + 1)
        for run_uid in ("", "r1", "r2")
    }
    assert len(ids) == 12


def test_parts_of_an_id_cannot_be_shifted_into_one_another():
    assert target.webhook_id("a", 11) != target.webhook_id("a\n1", 1)
    assert target.webhook_id("a1", 1) != target.webhook_id("a", 11)


@pytest.mark.parametrize(
    ("instant_us", "text"),
    [
        pytest.param(0, "1970-01-01T00:00:00Z", id="the epoch"),
        pytest.param(1_772_366_400_000_000, "2026-03-01T12:00:00Z", id="whole second"),
        pytest.param(1_772_366_400_100_000, "2026-03-01T12:00:00.100Z", id="millisecond"),
    ],
)
def test_instants_are_rfc_3339_in_utc(instant_us, text):
    assert target.instant_text(instant_us) == text


def test_the_standard_body_has_exactly_these_fields():
    firing = firings.a_firing(payload={"month": 3}, attempt=2, trigger="CatchUp")
    now_us = SLOT_US + 12_345_000

    body = msgspec.json.decode(_standard_body(firing, now_us))

    assert body == {
        "type": "schedule.fired",
        "timestamp": "2026-03-01T12:00:00Z",
        "data": {
            "id": f"{builders.UID}-1772366400",
            "generated_at": "2026-03-01T12:00:12.345Z",
            "schedule_id": builders.UID,
            "schedule": {"namespace": "default", "name": "report", "uid": builders.UID},
            "scheduled_time": "2026-03-01T12:00:00Z",
            "previous_time": "2026-03-01T11:59:00Z",
            "attempt": 2,
            "trigger": "CatchUp",
            "version": 3,
            "payload": {"month": 3},
        },
    }


def test_the_raw_body_is_the_payload_as_it_was_written():
    firing = firings.a_firing()
    odd = b'{"b": 1.0,  "a":"\\u00e9"}'
    action = msgspec.structs.replace(firing.action, payload=msgspec.Raw(odd))
    assert _raw_body(dataclasses.replace(firing, action=action)) == odd
    assert _raw_body(firing) == b""
