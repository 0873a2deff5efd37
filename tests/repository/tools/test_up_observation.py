"""What `make up` reads from the API server and from the receiver, as values."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from duepoint.cli.local import receiver as localreceiver
from duepoint.cli.local import rows
from tools.up import observation
from tools.up.accounts import Server

NOON = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


def a_schedule(spec: dict | None = None, **status: object) -> dict:
    return {
        "metadata": {"namespace": "default", "name": "one"},
        "spec": spec or {"schedule": "@every 5s", "webhook": {"url": "http://127.0.0.1:8089/"}},
        "status": status,
    }


def condition(kind: str, reason: str = "R", message: str = "M") -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def a_delivery(body: object, **headers: str) -> dict:
    return localreceiver.described(NOON, "/hooks/a", headers, json.dumps(body))


def test_a_schedule_shows_its_last_run_and_how_late_it_was():
    seen = rows.schedule(
        a_schedule(
            conditions=[condition("Ready")],
            nextScheduleTime="2026-11-21T12:00:05Z",
            lastRun={
                "scheduledTime": "2026-11-21T12:00:00Z",
                "startTime": "2026-11-21T12:00:00.250000Z",
                "outcome": "Succeeded",
            },
            runs={"started": 7},
        )
    )

    assert seen.next == NOON + dt.timedelta(seconds=5)
    assert seen.lateness == dt.timedelta(milliseconds=250)
    assert (seen.result, seen.started, seen.target) == ("Succeeded", 7, "Webhook")


@pytest.mark.parametrize(
    ("spec", "status", "result"),
    [
        (
            {"schedule": "@every 5s", "suspend": True},
            {"conditions": [condition("Ready")]},
            "Suspended",
        ),
        ({"schedule": "0 0 31 2 *"}, {"conditions": [condition("Stalled")]}, "Stalled"),
        ({"schedule": "@every 5s"}, {"conditions": [condition("Ready")]}, "-"),
        ({"schedules": ["@daily", "@hourly"]}, {"observedGeneration": -1}, "new"),
    ],
    ids=["suspended", "stalled", "not yet run", "nobody has looked at it"],
)
def test_the_result_says_what_matters_most(spec, status, result):
    assert rows.schedule(a_schedule(spec, **status)).result == result


def test_a_troubled_schedule_carries_its_message():
    status = {"conditions": [condition("Stalled", "NeverFires", "no such day")]}

    assert rows.schedule(a_schedule(**status)).message == "NeverFires: no such day"


def test_a_job_is_a_delivery_of_its_slot():
    seen = rows.job(
        {
            "metadata": {
                "name": "one-1",
                "creationTimestamp": "2026-11-21T12:00:00Z",
                "labels": {"duepoint.dev/schedule": "one"},
                "annotations": {"duepoint.dev/scheduled-time": "2026-11-21T12:00:00Z"},
            },
            "status": {"conditions": [{"type": "Complete", "status": "True"}]},
        }
    )

    assert (seen.kind, seen.schedule, seen.text, seen.slot) == (
        "Job",
        "one",
        "one-1 complete",
        NOON,
    )


def test_a_webhook_is_described_by_its_body_and_headers():
    data = {
        "schedule": {"namespace": "a", "name": "b"},
        "scheduled_time": "2026-11-21T11:59:59Z",
        "attempt": 2,
    }

    seen = observation.webhook(a_delivery({"data": data}, **{"Webhook-Id": "msg_1"}))

    assert (seen.schedule, seen.text) == ("b", "/hooks/a attempt 2")
    assert seen.at - seen.slot == dt.timedelta(seconds=1)


@pytest.mark.parametrize(
    "body", ["text", 3, None, [], {"data": 4}, {"data": {"schedule": "x"}}], ids=repr
)
def test_a_request_of_another_kind_is_kept_too(body):
    seen = observation.webhook(a_delivery(body))

    assert (seen.kind, seen.schedule, seen.slot) == ("webhook", "", None)


@pytest.fixture
def source(tmp_path: Path):
    file = tmp_path / "deliveries.jsonl"
    file.touch()
    nowhere = Server(url="https://127.0.0.1:1", ca_file=tmp_path / "ca")
    return observation.Source(nowhere, tmp_path / "token", file), file


def test_arrivals_are_read_once_and_remembered(source):
    reader, file = source
    line = json.dumps(a_delivery({})) + "\n"
    file.write_text(line)
    assert len(reader.webhooks()) == 1

    file.write_text(line * 3)

    assert len(reader.webhooks()) == 3


def test_half_a_line_waits_for_its_other_half(source):
    reader, file = source
    line = json.dumps(a_delivery({})) + "\n"
    file.write_text(line + line[:10])
    assert len(reader.webhooks()) == 1

    file.write_text(line + line)

    assert len(reader.webhooks()) == 2


def test_a_new_file_of_the_receiver_is_read_from_its_beginning(source):
    reader, file = source
    line = json.dumps(a_delivery({})) + "\n"
    file.write_text(line * 5)
    reader.webhooks()

    file.write_text(line)

    assert len(reader.webhooks()) == 6
