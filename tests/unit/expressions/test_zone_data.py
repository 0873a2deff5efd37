"""What is known of a zone from 2025 on, as a text that any version reads."""

from __future__ import annotations

import pytest

from duepoint.expressions import timezones
from duepoint.expressions.timezones import Zone

ZONES = sorted(timezones.known_names())
FIRST = -(1 << 62)
IN_2025 = 1_735_689_600


def read_elsewhere(monkeypatch, zone: str, data: str) -> Zone:
    """The zone as a version reads it that knows nothing of it but UTC."""
    monkeypatch.setattr(timezones, "is_known", lambda _: False)
    return timezones.located.__wrapped__(zone, data)


def since_2025(zone: Zone) -> list[tuple[int, int]]:
    offset = zone.offset_at(IN_2025)
    return [(IN_2025, offset), *timezones._changes_after(zone, IN_2025)]


@pytest.mark.parametrize("first", range(0, len(ZONES), 60))
def test_every_zone_is_read_elsewhere_as_it_is_here(monkeypatch, first):
    for name in ZONES[first : first + 60]:
        own, data = timezones.load(name), timezones.data_of(name)
        if not data or data.endswith("*"):
            continue
        with monkeypatch.context() as elsewhere:
            assert since_2025(read_elsewhere(elsewhere, name, data)) == since_2025(own), name


@pytest.mark.parametrize(
    ("zone", "data"),
    [
        ("Etc/UTC", ""),
        ("Asia/Tokyo", "32400;;"),
        ("Europe/Berlin", "3600;;CET-1CEST,M3.5.0,M10.5.0/3"),
    ],
)
def test_a_zone_is_its_offset_and_its_rule(zone, data):
    assert timezones.data_of(zone) == data


def test_of_very_many_changes_without_a_rule_each_version_knows_the_later_ones(monkeypatch):
    starts = [IN_2025 + 3_600 * number * number for number in range(1, 60)]
    offsets = [3_600 * (number % 3) for number in range(1, 60)]
    moon = Zone("Africa/Casablanca", (FIRST, *starts), (0, *offsets), "<+01>-1")
    monkeypatch.setattr(timezones, "load", lambda _: moon)
    data = timezones.data_of.__wrapped__(moon.name)
    assert data.endswith(";*")
    other = timezones.located.__wrapped__(moon.name, f"7200{data[1:]}")
    assert other.offset_at(IN_2025 + 1) == 7_200
    assert (other.starts[-59:], other.offsets[-59:]) == (tuple(starts), tuple(offsets))


def test_other_data_count_from_2025_on_and_our_own_before():
    own = timezones.load("Europe/Berlin")
    other = timezones.located("Europe/Berlin", "10800;;")
    before = [start for start in own.starts if start < IN_2025]
    assert other.starts == (*before, IN_2025)
    assert other.offsets[-1] == 10_800
    assert other.offsets[:-1] == own.offsets[: len(before)]


def test_a_zone_that_only_another_version_knows_is_read_from_its_data():
    zone = timezones.located("Mars/Olympus", "7200;;")
    assert zone.offsets[-1] == 7_200
