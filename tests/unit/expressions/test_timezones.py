"""Zones come from the shipped database alone, all of them, with the right offsets."""

import bisect
import datetime as dt
import importlib.resources
import zoneinfo

import pytest

from duepoint import errors
from duepoint.expressions import compile_expression, expression, timezones, tzif
from tests.property.expressions import walker

# One name for each history of offsets: two thirds of the names are links to others.
DISTINCT = {
    name: timezones.load(name)
    for name in {
        (zone.starts, zone.offsets): zone.name
        for zone in map(timezones.load, sorted(timezones.known_names()))
    }.values()
}


def offset_at(second, name):
    return walker.local_at(second, name).utcoffset().total_seconds()


def test_every_zone_changes_its_offset_when_zoneinfo_says_so():
    for name, zone in DISTINCT.items():
        for index in range(1, len(zone.starts)):
            start = zone.starts[index]
            around = [offset_at(start - 1, name), offset_at(start, name)]
            assert around == [zone.offsets[index - 1], zone.offsets[index]], (name, start)
            assert around[0] != around[1]


def test_no_zone_has_a_change_that_was_overlooked():
    last_day = expression.LAST_US // 86_400_000_000
    for name, zone in DISTINCT.items():
        for day in range(3, last_day, 397):  # moving through the seasons
            second = day * 86_400
            index = bisect.bisect_right(zone.starts, second) - 1
            assert offset_at(second, name) == zone.offsets[index], (name, second)


def test_every_stretch_is_longer_than_the_overlap_before_it():
    # Otherwise an overlap would reach over more than two stretches, which dst.py does not expect.
    for name, zone in DISTINCT.items():
        for index in range(1, len(zone.starts) - 1):
            lasts = zone.starts[index + 1] - zone.starts[index]
            assert lasts > 2 * abs(zone.offsets[index] - zone.offsets[index - 1]), name


def test_every_zone_steps_there_and_back():
    start_us = 1_700_000_000_000_000
    for name in timezones.known_names():
        daily = compile_expression("30 2 * * *", time_zone=name)
        next_us = daily.next_after(start_us)
        assert 0 < next_us - start_us <= 26 * 3_600_000_000
        assert daily.previous_before(next_us + 1) == next_us


def test_every_zone_steps_through_thirty_years_there_and_back():
    start_us, end_us = 1_104_537_600_000_000, 2_051_222_400_000_000
    for name in DISTINCT:
        days = compile_expression("30 2 1,11,21 * *", time_zone=name)
        there, at_us = [], start_us
        while (at_us := days.next_after(at_us)) is not None and at_us < end_us:
            there.append(at_us)
        back, at_us = [], end_us
        while (at_us := days.previous_before(at_us)) is not None and at_us > start_us:
            back.append(at_us)
        assert back[::-1] == there, name
        assert days.count_between(start_us, end_us - 1) == len(there), name
        local = [walker.local_at(slot_us // 1_000_000, name) for slot_us in there[::97]]
        assert all((at.hour, at.minute) >= (2, 30) and at.hour < 4 for at in local), name


def test_the_list_of_the_package_decides():
    listed = importlib.resources.files("tzdata").joinpath("zones").read_text("ascii").split()
    assert timezones.known_names() == frozenset(listed) - {"Factory"}
    assert timezones.is_known("EST5EDT")
    assert not timezones.is_known("est5edt")


def test_zone_files_of_the_machine_are_not_looked_at(tmp_path, monkeypatch):
    (tmp_path / "Nowhere").write_bytes(b"TZif2")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    zoneinfo.reset_tzpath(to=[str(tmp_path)])
    try:
        assert not timezones.is_known("Nowhere")
        timezones.load.cache_clear()
        assert set(timezones.load("Europe/Rome").offsets) == {3_600, 7_200}
    finally:
        zoneinfo.reset_tzpath()


def test_an_unknown_zone_names_the_field_to_mend():
    with pytest.raises(errors.InvalidExpression) as caught:
        timezones.load("Mars/Olympus")
    assert (caught.value.reason, caught.value.field) == ("UnknownTimeZone", "timeZone")


def a_file(footer, version=b"2"):
    header = b"TZif" + version + b"\0" * 15 + b"\0\0\0\0" * 4 + b"\0\0\0\1" * 2
    block = header + b"\0\0\0\0" + b"\0\0" + b"\0"
    return block + block + b"\n" + footer + b"\n"


@pytest.mark.parametrize(
    ("footer", "first"),
    [
        pytest.param(b"AAA0BBB,J60/0,J300", "1970-03-01T00:00:00", id="day-without-leap-days"),
        pytest.param(b"AAA0BBB,59/0,300", "1970-03-01T00:00:00", id="day-from-zero"),
        pytest.param(b"AAA0BBB,M3.5.0/-1,M10.1.0", "1970-03-28T23:00:00", id="before-midnight"),
        pytest.param(b"AAA0BBB-2:30,M3.2.0/26:10:05,M10.1.0", "1970-03-09T02:10:05", id="late"),
    ],
)
def test_footer_rules_of_every_form_are_understood(footer, first):
    before, changes = tzif.parse(a_file(footer), through_year=1972)
    assert before == 0
    when = dt.datetime.fromtimestamp(changes[0][0], dt.UTC)
    assert when.isoformat().startswith(first)
    assert changes[0][1] == (9_000 if b"2:30" in footer else 3_600)


def test_leap_years_do_not_move_a_day_counted_without_leap_days():
    _, changes = tzif.parse(a_file(b"AAA0BBB,J60/0,J300/0"), through_year=1972)
    days = [dt.datetime.fromtimestamp(when, dt.UTC).strftime("%Y-%m-%d") for when, _ in changes]
    assert days[4] == "1972-03-01"


@pytest.mark.parametrize("data", [a_file(b"UTC0", version=b"\0"), b"PNG" + b"\0" * 60])
def test_another_kind_of_file_is_refused(data):
    with pytest.raises(ValueError, match="TZif"):
        tzif.parse(data, through_year=1970)


def test_an_unknown_footer_is_refused_rather_than_guessed():
    with pytest.raises(ValueError, match="not known"):
        tzif.parse(a_file(b"AAA"), through_year=1970)
