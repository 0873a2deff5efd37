"""The load of the coming hours: counted right, and shown."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from duepoint import cli
from duepoint.schedules import load
from duepoint.schedules import spec as specs
from tests.support.builders import at

FROM = at("2026-03-02 00:00:00")
DAY = 24 * 60


def a_spec(schedule, name="report", **more):
    return specs.parse(
        json.dumps(
            {"schedule": schedule, "webhook": {"url": "https://a.example/"}, **more}
        ).encode(),
        namespace="team-a",
        name=name,
        uid="-",
        generation=1,
        created_us=at("2026-02-01 00:00:20"),
    )


def forecast(*found, minutes=DAY):
    coming = load.Forecast(FROM, minutes)
    for one in found:
        coming.add(one)
    return coming


def busy(known):
    return {minute: count for minute, count in enumerate(known.minutes) if count}


def test_suspended_ones_have_no_slots_until_they_are_resumed():
    known = forecast(
        a_spec("0 * * * *", suspend=True),
        a_spec("0 * * * *", "b", suspend=True, suspendUntil="2026-03-02T22:00:00Z"),
    )
    assert (known.schedules, known.suspended) == (2, 1)
    assert busy(known) == {22 * 60: 1, 23 * 60: 1}


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    items = [
        {
            "apiVersion": "duepoint.dev/v1alpha1",
            "kind": "Schedule",
            "metadata": {"name": f"s{number}", "namespace": "team-a"},
            "spec": {
                "schedule": "0 * * * *" if number else "0 0 * * *",
                "webhook": {"url": "https://a.example/"},
            },
        }
        for number in range(30)
    ]
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return path


def run(*arguments, code=0):
    done = CliRunner().invoke(cli.commands, ["forecast", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def test_json_has_the_hours_and_the_worst_minutes(file):
    (line,) = run(
        "-f", file, "--from", "2026-03-02T00:00:00Z", "--days", "1", "-o", "json"
    ).splitlines()
    found = json.loads(line)
    assert (found["schedules"], found["runs"], len(found["hours"])) == (30, 697, 24)
    assert found["worst"][0]["slots"] == 30
    assert found["worst"][0]["inside"][0]["schedules"] == 29


def test_what_cannot_be_read_is_named_and_left_out(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "apiVersion: duepoint.dev/v1alpha1\nkind: Schedule\nmetadata: {name: bad}\n"
        'spec: {schedule: "61 * * * *", webhook: {url: "https://a.example/"}}\n'
    )
    done = CliRunner().invoke(cli.commands, ["forecast", "-f", str(path), "-o", "json"])
    assert json.loads(done.stdout)["schedules"] == 0
    assert "left out" in done.stderr
    assert "bad" in done.stderr


def test_the_table_names_the_worst_minute_who_is_in_it_and_what_helps(file):
    said = run("-f", file, "--from", "2026-03-02T00:00:00Z", "--days", "2")
    assert "30 Schedules: 1,394 runs from 2026-03-02T00:00:00Z to 2026-03-04T00:00:00Z" in said
    assert "Mon 02 ██ ██" in said
    assert "2026-03-02T00:00:00+00:00  30, as in 1 other" in said
    assert "29  0 * * * * (Etc/UTC): team-a/s1, team-a/s2, team-a/s3, ..." in said
    assert "to spread them: write H for the minute" in said


@pytest.mark.parametrize(
    ("schedule", "wanted"),
    [
        ("0 9 * * *", {9 * 60: 1}),
        ("30 * * * *", {hour * 60 + 30: 1 for hour in range(24)}),
        ("* * * * *", dict.fromkeys(range(DAY), 1)),
        ("@every 6h", {0: 1, 360: 1, 720: 1, 1080: 1}),
        ("*/10 * * * * *", dict.fromkeys(range(DAY), 6)),
        ("@at 2026-03-02T01:02:03Z", {62: 1}),
        ("0 0 1 1 *", {}),
    ],
    ids=["daily", "hourly", "minutely", "every", "seconds", "once", "not now"],
)
def test_each_slot_is_in_its_minute(schedule, wanted):
    assert busy(forecast(a_spec(schedule))) == wanted
