"""What a clock change does to slots: tables of local times on the days that matter.

Slots are given as local times with their offset, the way a user would see them.
"""

import datetime as dt

import pytest

from duepoint.expressions import Gap, Overlap, compile_expression, timezones
from tests.property.expressions import walker
from tests.unit.expressions import moments

NEW_YORK, LONDON = "America/New_York", "Europe/London"
CHOICES = {
    "both": {"overlap": Overlap.BOTH},
    "second": {"overlap": Overlap.SECOND},
    "skip": {"gap": Gap.SKIP},
}


def local_slots(text, zone, first_day, last_day, **choices):
    """The slots of the local days, such as "08 03:00-04:00"."""
    start = dt.datetime.fromisoformat(first_day).replace(tzinfo=walker.zone(zone))
    end = dt.datetime.fromisoformat(last_day).replace(tzinfo=walker.zone(zone), hour=23, minute=59)
    expression = compile_expression(text, time_zone=zone, **choices)
    before = moments.us(start.astimezone(dt.UTC).isoformat()) - 1
    through = moments.us(end.astimezone(dt.UTC).isoformat())
    found, at_us = [], before
    while (at_us := expression.next_after(at_us)) is not None and at_us <= through:
        local = walker.local_at(at_us // 1_000_000, zone)
        found.append(f"{local:%d %H:%M}{local.isoformat()[-6:]}")
    assert expression.count_between(before, through) == len(found)
    return found


#: Below each zone: days | expression | choice, if any | every slot of those days.
TABLE = """\
America/New_York
  2026-03-07 to 2026-03-09 | 30 2 * * * | 07 02:30-05:00, 08 03:00-04:00, 09 02:30-04:00
  2026-03-07 to 2026-03-09 | 30 2 * * * | skip | 07 02:30-05:00, 09 02:30-04:00
  2026-03-08 | 0,15,45 2,3 * * * | 08 03:00-04:00, 08 03:15-04:00, 08 03:45-04:00
  2026-03-08 | 15,45 2 * * * | 08 03:00-04:00
  2026-03-08 | 0 * * * * | 08 00:00-05:00, 08 01:00-05:00, 08 03:00-04:00, 08 04:00-04:00,
    08 05:00-04:00, 08 06:00-04:00, 08 07:00-04:00, 08 08:00-04:00, 08 09:00-04:00, 08 10:00-04:00,
    08 11:00-04:00, 08 12:00-04:00, 08 13:00-04:00, 08 14:00-04:00, 08 15:00-04:00, 08 16:00-04:00,
    08 17:00-04:00, 08 18:00-04:00, 08 19:00-04:00, 08 20:00-04:00, 08 21:00-04:00, 08 22:00-04:00,
    08 23:00-04:00
  2026-03-08 | */30 1-3 * * * | 08 01:00-05:00, 08 01:30-05:00, 08 03:00-04:00, 08 03:30-04:00
  2026-11-01 to 2026-11-02 | 30 1 * * * | 01 01:30-04:00, 02 01:30-05:00
  2026-11-01 to 2026-11-02 | 30 1 * * * | second | 01 01:30-05:00, 02 01:30-05:00
  2026-11-01 to 2026-11-02 | 30 1 * * * | both | 01 01:30-04:00, 01 01:30-05:00, 02 01:30-05:00
  2026-11-01 | 0 1 * * * | 01 01:00-04:00
  2026-11-01 | 0 2 * * * | 01 02:00-05:00
  2026-11-01 | */30 0-2 * * * | 01 00:00-04:00, 01 00:30-04:00, 01 01:00-04:00, 01 01:30-04:00,
    01 01:00-05:00, 01 01:30-05:00, 01 02:00-05:00, 01 02:30-05:00
  2012-03-10 to 2012-03-12 | 0 2 * * * | skip | 10 02:00-05:00, 12 02:00-04:00
  2012-11-04 | 0 1 * * * | both | 04 01:00-04:00, 04 01:00-05:00
  2012-11-04 | 0 * * * * | 04 00:00-04:00, 04 01:00-04:00, 04 01:00-05:00, 04 02:00-05:00,
    04 03:00-05:00, 04 04:00-05:00, 04 05:00-05:00, 04 06:00-05:00, 04 07:00-05:00, 04 08:00-05:00,
    04 09:00-05:00, 04 10:00-05:00, 04 11:00-05:00, 04 12:00-05:00, 04 13:00-05:00, 04 14:00-05:00,
    04 15:00-05:00, 04 16:00-05:00, 04 17:00-05:00, 04 18:00-05:00, 04 19:00-05:00, 04 20:00-05:00,
    04 21:00-05:00, 04 22:00-05:00, 04 23:00-05:00
  2026-03-07 to 2026-03-09 | 59 1,2 8 3 * | 08 01:59-05:00, 08 03:00-04:00
  2026-03-07 to 2026-03-09 | 0 3 8 3 * | skip | 08 03:00-04:00
  2026-03-07 to 2026-03-09 | 30 2 9 3 * | 09 02:30-04:00
Europe/London
  2026-03-29 | 30 1 * * * | 29 02:00+01:00
  2026-10-25 | 30 1 * * * | both | 25 01:30+01:00, 25 01:30+00:00
Australia/Lord_Howe
  2026-10-04 | 15 2 * * * | 04 02:30+11:00
  2026-10-04 | 30 * * * * | 04 00:30+10:30, 04 01:30+10:30, 04 02:30+11:00, 04 03:30+11:00,
    04 04:30+11:00, 04 05:30+11:00, 04 06:30+11:00, 04 07:30+11:00, 04 08:30+11:00, 04 09:30+11:00,
    04 10:30+11:00, 04 11:30+11:00, 04 12:30+11:00, 04 13:30+11:00, 04 14:30+11:00, 04 15:30+11:00,
    04 16:30+11:00, 04 17:30+11:00, 04 18:30+11:00, 04 19:30+11:00, 04 20:30+11:00, 04 21:30+11:00,
    04 22:30+11:00, 04 23:30+11:00
  2026-04-05 | 0 */2 * * * | 05 00:00+11:00, 05 02:00+10:30, 05 04:00+10:30, 05 06:00+10:30,
    05 08:00+10:30, 05 10:00+10:30, 05 12:00+10:30, 05 14:00+10:30, 05 16:00+10:30, 05 18:00+10:30,
    05 20:00+10:30, 05 22:00+10:30
  2026-04-05 | 45 1 * * * | both | 05 01:45+11:00, 05 01:45+10:30
America/Sao_Paulo
  2018-11-03 to 2018-11-05 | 0 0 * * * | 03 00:00-03:00, 04 01:00-02:00, 05 00:00-02:00
  2018-11-03 to 2018-11-05 | 0 0 * * * | skip | 03 00:00-03:00, 05 00:00-02:00
  2018-11-01 to 2018-11-30 | 0 9 10 * * | 10 09:00-02:00
  2018-02-17 to 2018-02-18 | 30 23 * * * | 17 23:30-02:00, 18 23:30-03:00
Africa/Casablanca
  2026-02-15 | 30 2 * * * | both | 15 02:30+01:00, 15 02:30+00:00
  2026-03-22 | 30 2 * * * | 22 03:00+01:00
Pacific/Apia
  2011-12-29 to 2011-12-31 | 0 12 * * * | 29 12:00-10:00, 31 00:00+14:00, 31 12:00+14:00
  2011-12-29 to 2011-12-31 | 0 12 * * * | skip | 29 12:00-10:00, 31 12:00+14:00
  2011-12-29 to 2011-12-31 | 0 */12 * * * | 29 00:00-10:00, 29 12:00-10:00, 31 00:00+14:00,
    31 12:00+14:00
  2011-12-23 to 2012-01-06 | 30 9 * * 5 | 23 09:30-10:00, 31 00:00+14:00, 06 09:30+14:00
  2011-12-29 to 2011-12-31 | */30 22-23 29,30,31 12 * | 29 22:00-10:00, 29 22:30-10:00,
    29 23:00-10:00, 29 23:30-10:00, 31 22:00+14:00, 31 22:30+14:00, 31 23:00+14:00, 31 23:30+14:00
Europe/Dublin
  2026-03-28 to 2026-03-29 | 30 1 * * * | 28 01:30+00:00, 29 02:00+01:00
Antarctica/Troll
  2026-03-29 | 30 1,2 * * * | 29 03:00+02:00
  2026-10-25 | 30 1,2 * * * | both | 25 01:30+02:00, 25 02:30+02:00, 25 01:30+00:00, 25 02:30+00:00
Pacific/Chatham
  2026-09-26 to 2026-09-28 | 50 2 * * * | 26 02:50+12:45, 27 03:45+13:45, 28 02:50+13:45
Africa/Cairo
  2026-04-23 to 2026-04-25 | 0 0 * * 5 | 24 01:00+03:00
America/Santiago
  2026-09-06 | 0,30 0 * * * | 06 01:00-03:00
America/Havana
  2024-11-03 | 30 0 * * * | 03 00:30-04:00
  2024-11-03 | 30 0 * * * | second | 03 00:30-05:00
Asia/Pyongyang
  2018-05-04 to 2018-05-05 | 45 23 * * * | 05 00:00+09:00, 05 23:45+09:00
Africa/Juba
  2021-01-31 to 2021-02-01 | 30 23 * * * | both | 31 23:30+03:00, 31 23:30+02:00, 01 23:30+02:00
Asia/Kathmandu
  2026-05-01 | 30 2 * * * | 01 02:30+05:45
Etc/GMT+12
  2026-05-01 | 30 2 * * * | 01 02:30-12:00
"""


def rows():
    zone = ""
    for line in TABLE.replace(",\n    ", ", ").splitlines():
        if line.startswith(" "):
            days, text, *choice, slots = line.strip().split(" | ")
            choices = {} if not choice else CHOICES[choice[0]]
            yield pytest.param(zone, text, days, choices, slots, id=line.strip())
        else:
            zone = line


@pytest.mark.parametrize(("zone", "text", "days", "choices", "slots"), list(rows()))
def test_slots_of_the_days_of_a_change(zone, text, days, choices, slots):
    first, _, last = days.partition(" to ")
    assert ", ".join(local_slots(text, zone, first, last or first, **choices)) == slots


@pytest.mark.parametrize(
    ("text", "real_minutes"),
    [("*/15 * * * *", 15), ("* * * * *", 1), ("0 * * * *", 60), ("5,35 * * * *", 30)],
)
@pytest.mark.parametrize("zone", [NEW_YORK, LONDON])
def test_wildcards_keep_their_real_cadence_for_a_year(zone, text, real_minutes):
    expression = compile_expression(text, time_zone=zone)
    start, end = moments.us("2026-01-01T00:00:00Z"), moments.us("2027-01-01T00:00:00Z")
    assert expression.count_between(start, end) == 365 * 24 * 60 // real_minutes
    for change in (second for second in timezones.load(zone).starts if second > start // 10**6):
        at_us = change * 1_000_000 - 3 * 3_600_000_000
        for _ in range(6 * 60 // real_minutes):
            after_us = expression.next_after(at_us)
            assert after_us - at_us <= real_minutes * 60_000_000
            at_us = after_us
        if change > end // 10**6:
            break


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        pytest.param("30 1,2 * * *", True, id="fixed"),
        pytest.param("5,30 1,2,14 * * *", True, id="lists-are-fixed"),
        pytest.param("10-30/10 1-3 * * *", True, id="partial-ranges-are-fixed"),
        pytest.param("H 1,2 * * *", True, id="one-hashed-minute-is-fixed"),
        pytest.param("30 * * * *", False, id="any-hour"),
        pytest.param("* 1,2 * * *", False, id="any-minute"),
        pytest.param("*/20 1,2 * * *", False, id="stepped-minute"),
        pytest.param("0-59/20 1,2 * * *", False, id="full-range-stepped"),
        pytest.param("7,0/20 1,2 * * *", False, id="from-the-first-value-on"),
        pytest.param("30 0-23 * * *", False, id="full-range-of-hours"),
        pytest.param("30 0-11,12-23 * * *", False, id="all-hours-in-parts"),
        pytest.param("H/20 1,2 * * *", False, id="hash-stepped-over-the-field"),
        pytest.param("@hourly", False, id="hourly"),
    ],
)
def test_only_fixed_times_look_at_the_daylight_saving_choices(text, moved):
    start, end = moments.us("2026-01-01T00:00:00Z"), moments.us("2027-01-01T00:00:00Z")

    def count(**choices):
        expression = compile_expression(text, time_zone=NEW_YORK, **choices)
        return expression.count_between(start, end)

    assert (count(gap=Gap.RUN_ONCE) != count(gap=Gap.SKIP)) is moved
    assert (count(overlap=Overlap.FIRST) != count(overlap=Overlap.BOTH)) is moved
