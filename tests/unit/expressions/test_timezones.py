"""Zones come from the shipped database alone, all of them, with the right offsets."""

import datetime as dt
import importlib.resources
import zoneinfo

import pytest

from duepoint import errors
from duepoint.expressions import timezones


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
    before, changes, _ = timezones.parse_tzif(a_file(footer))
    assert before == 0
    when = dt.datetime.fromtimestamp(changes[0][0], dt.UTC)
    assert when.isoformat().startswith(first)
    assert changes[0][1] == (9_000 if b"2:30" in footer else 3_600)


def test_an_unknown_footer_is_refused_rather_than_guessed():
    with pytest.raises(ValueError, match="unknown form"):
        timezones.parse_tzif(a_file(b"AAA"))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("Europe/Rom", "Europe/Rome"),
        ("Europe/Romee", "Europe/Rome"),
        ("Eutope/Rome", "Europe/Rome"),
        ("Europe/Rmoe", "Europe/Rome"),
        ("America/NewYork", "America/New_York"),
        ("Zuerich", "Europe/Zurich"),
        ("Buenos Aires", "America/Argentina/Buenos_Aires"),
        ("Asia/Roem", "Europe/Rome"),
    ],
)
def test_a_name_with_a_slip_gets_the_right_one(wrong, meant):
    with pytest.raises(errors.InvalidExpression, match=f'did you mean "{meant}"'):
        timezones.load(wrong)
