"""Statuses are kept packed: the same text comes back, whatever it is, and a usual one is small."""

from __future__ import annotations

import msgspec
import pytest

from duepoint.controller.status import published
from tests.support.builders import at

USUAL = msgspec.json.encode(
    {
        "conditions": [
            {
                "lastTransitionTime": "2026-11-22T08:00:01Z",
                "message": "armed; the next slot is shown in nextScheduleTime",
                "observedGeneration": 3,
                "reason": "Scheduled",
                "status": "True",
                "type": "Ready",
            }
        ],
        "lastRun": {"jobName": "nightly-29385090", "slot": "2026-11-22T01:30:00Z"},
        "managedBy": "duepoint-system/duepoint",
        "nextScheduleTime": "2026-11-23T01:30:00Z",
        "observedGeneration": 3,
        "runs": {"failed": 0, "missed": 0, "skipped": 0, "started": 12, "succeeded": 12},
        "settledThrough": "2026-11-22T08:00:01Z",
        "target": "Job busybox",
        "upcomingTimes": ["2026-11-23T01:30:00Z", "2026-11-24T01:30:00Z", "2026-11-25T01:30:00Z"],
    }
)


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", USUAL, "überfällig".encode() * 1000, bytes(range(256)) * 40, b'{"a":1}' * 5000],
    ids=["nothing", "empty", "usual", "not ascii", "any bytes", "longer than looked back"],
)
def test_what_was_packed_comes_back(text):
    assert published.decompress(published.compress(text)) == text


def test_deliveries_that_failed_above_the_watermark_are_named():
    rows = [
        {"scheduledTime": "2026-03-01T12:05:00Z", "outcome": "Retrying"},
        {"scheduledTime": "2026-03-01T12:04:00Z", "outcome": "Retrying", "trigger": "CatchUp"},
        {"scheduledTime": "2026-03-01T12:03:00Z", "outcome": "Retrying", "trigger": "Manual"},
        {"scheduledTime": "2026-03-01T12:02:00Z", "outcome": "Failed"},
        {"scheduledTime": "2026-03-01T12:00:00Z", "outcome": "Retrying"},
    ]
    text = msgspec.json.encode({"settledThrough": "2026-03-01T12:00:00Z", "recentRuns": rows})
    found = published.of(text).retried_us
    assert found == (at("2026-03-01 12:04:00"), at("2026-03-01 12:05:00"))


@pytest.mark.parametrize(
    ("observed", "of_condition", "status", "asked", "accepted"),
    [
        (3, 3, "True", 3, True),
        (3, 3, "True", 4, False),
        (4, 4, "True", 3, False),
        (4, 3, "True", 4, False),
        (3, 3, "False", 3, False),
        (3, 3, "Unknown", 3, False),
    ],
)
def test_a_generation_is_accepted_by_a_status_of_that_very_generation(
    observed, of_condition, status, asked, accepted
):
    ready = {"type": "Ready", "status": status, "observedGeneration": of_condition}
    text = msgspec.json.encode({"observedGeneration": observed, "conditions": [ready]})
    assert published.has_accepted(text, asked) is accepted
    assert published.of(text).has_accepted(asked) is accepted
