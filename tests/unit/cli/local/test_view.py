"""The screen of `make up` fits its terminal and says the same thing at every size."""

from __future__ import annotations

import datetime as dt

import pytest
from rich.console import Console

from duepoint.cli.local import view
from duepoint.cli.local.rows import ArrivalRow, ScheduleRow

NOON = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)


def schedule(name: str = "one", **changes: object) -> ScheduleRow:
    values: dict = {
        "namespace": "default",
        "name": name,
        "when": "@every 30s",
        "target": "Webhook 127.0.0.1:8089/hooks/one",
        "next": NOON + dt.timedelta(seconds=12),
        "last": NOON - dt.timedelta(seconds=18),
        "result": "Succeeded",
        "lateness": dt.timedelta(milliseconds=3),
        "started": 4,
        "message": "",
    }
    return ScheduleRow(**values | changes)


def delivery(second: int) -> ArrivalRow:
    at = NOON - dt.timedelta(seconds=second)
    return ArrivalRow(
        at=at + dt.timedelta(milliseconds=6),
        kind="webhook",
        schedule="one",
        slot=at,
        text="/hook",
        is_exact=True,
    )


def lines(schedules, deliveries=(), notices=(), size=(80, 24)) -> list[str]:
    console = Console(width=size[0], height=size[1], color_system=None)
    with console.capture() as capture:
        console.print(view.screen(schedules, deliveries, notices, now=NOON, size=size))
    return capture.get().split("\n")


@pytest.mark.parametrize("size", [(80, 24), (140, 40), (60, 16), (40, 16)], ids=str)
@pytest.mark.parametrize("number", [0, 3, 300])
def test_the_screen_fits_its_terminal(size, number):
    shown = lines(
        [schedule(f"schedule-{index}" * 3) for index in range(number)],
        [delivery(index) for index in range(number)],
        ["worker has ended: " + "x" * 300],
        size,
    )

    assert len(shown) <= size[1]
    assert max(map(len, shown)) <= size[0]


@pytest.mark.parametrize("width", [40, 55, 56, 75, 76, 80, 110])
def test_a_name_and_its_answers_can_be_read_at_every_width(width):
    result = "Reconciling"
    row = schedule("nightly-rep", next=NOON + dt.timedelta(days=99), result=result)
    shown = lines([row], [delivery(2)], size=(width, 24))

    assert any(
        line.startswith("nightly-rep ") and "2027-02-28" in line and result in line
        for line in shown
    )
    assert any(line.startswith("11:59:58") and " one " in line and "6 ms" in line for line in shown)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_cause_at_the_end_of_a_notice_is_read_at_every_width(width):
    cause = "spec.schedule: minute 61 is above 59"
    notice = f"examples/reports/nightly.yaml, document 1 (Schedule default/nightly): {cause}"
    shown = lines([schedule()], notices=[notice], size=(width, 24))

    assert cause in " ".join(" ".join(shown).split())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-5, "due"),
        (-1, "in 0 s"),
        (12, "in 12 s"),
        (600, "in 10 min"),
        (10_000, "14:46"),
        (13.5 * 3600, "Sun 01:30"),
        (5 * 86_400, "Thu 12:00"),
        (10_000_000, "2027-03-17"),
    ],
)
def test_the_next_slot_is_told_as_people_tell_it(seconds, text):
    moment = None if seconds is None else NOON + dt.timedelta(seconds=seconds)

    assert view.until(moment, NOON) == text
