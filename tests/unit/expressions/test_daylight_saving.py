"""What a clock change does to slots: tables of local times on the days that matter.

A row names zone, expression, choices and the window's local days; slots are given as local times
with their offset, the way a user would see them.
"""

import datetime as dt

import pytest

from duepoint.expressions import Gap, Overlap, compile_expression, timezones
from tests.property.expressions import walker
from tests.unit.expressions import moments

BOTH, SECOND, SKIP = {"overlap": Overlap.BOTH}, {"overlap": Overlap.SECOND}, {"gap": Gap.SKIP}


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


NEW_YORK, LONDON, HOWE = "America/New_York", "Europe/London", "Australia/Lord_Howe"
SAO_PAULO, CASABLANCA, APIA = "America/Sao_Paulo", "Africa/Casablanca", "Pacific/Apia"


@pytest.mark.parametrize(
    ("zone", "text", "days", "choices", "expected"),
    [
        pytest.param(
            *(NEW_YORK, "30 2 * * *", ("2026-03-07", "2026-03-09"), {}),
            ["07 02:30-05:00", "08 03:00-04:00", "09 02:30-04:00"],
            id="new-york-gap-runs-once-right-after",
        ),
        pytest.param(
            *(NEW_YORK, "30 2 * * *", ("2026-03-07", "2026-03-09"), SKIP),
            ["07 02:30-05:00", "09 02:30-04:00"],
            id="new-york-gap-skipped",
        ),
        pytest.param(
            *(NEW_YORK, "0,15,45 2,3 * * *", ("2026-03-08", "2026-03-08"), {}),
            ["08 03:00-04:00", "08 03:15-04:00", "08 03:45-04:00"],
            id="several-missing-times-run-once-with-a-real-one",
        ),
        pytest.param(
            *(NEW_YORK, "15,45 2 * * *", ("2026-03-08", "2026-03-08"), {}),
            ["08 03:00-04:00"],
            id="several-missing-times-run-once",
        ),
        pytest.param(
            *(NEW_YORK, "0 * * * *", ("2026-03-08", "2026-03-08"), {}),
            [f"08 {hour:02}:00-{'05' if hour < 2 else '04'}:00" for hour in (0, 1, *range(3, 24))],
            id="hourly-goes-on-through-the-gap",
        ),
        pytest.param(
            *(NEW_YORK, "*/30 1-3 * * *", ("2026-03-08", "2026-03-08"), {}),
            ["08 01:00-05:00", "08 01:30-05:00", "08 03:00-04:00", "08 03:30-04:00"],
            id="a-step-keeps-its-cadence-in-the-gap",
        ),
        pytest.param(
            *(NEW_YORK, "30 1 * * *", ("2026-11-01", "2026-11-02"), {}),
            ["01 01:30-04:00", "02 01:30-05:00"],
            id="overlap-first",
        ),
        pytest.param(
            *(NEW_YORK, "30 1 * * *", ("2026-11-01", "2026-11-02"), SECOND),
            ["01 01:30-05:00", "02 01:30-05:00"],
            id="overlap-second",
        ),
        pytest.param(
            *(NEW_YORK, "30 1 * * *", ("2026-11-01", "2026-11-02"), BOTH),
            ["01 01:30-04:00", "01 01:30-05:00", "02 01:30-05:00"],
            id="overlap-both",
        ),
        pytest.param(
            *(NEW_YORK, "0 1 * * *", ("2026-11-01", "2026-11-01"), {}),
            ["01 01:00-04:00"],
            id="the-first-instant-of-the-overlap",
        ),
        pytest.param(
            *(NEW_YORK, "0 2 * * *", ("2026-11-01", "2026-11-01"), {}),
            ["01 02:00-05:00"],
            id="the-end-of-the-overlap-exists-once",
        ),
        pytest.param(
            *(NEW_YORK, "*/30 0-2 * * *", ("2026-11-01", "2026-11-01"), {}),
            [
                *("01 00:00-04:00", "01 00:30-04:00", "01 01:00-04:00", "01 01:30-04:00"),
                *("01 01:00-05:00", "01 01:30-05:00", "01 02:00-05:00", "01 02:30-05:00"),
            ],
            id="a-step-keeps-its-cadence-in-the-overlap",
        ),
        pytest.param(
            *(LONDON, "30 1 * * *", ("2026-03-29", "2026-03-29"), {}),
            ["29 02:00+01:00"],
            id="london-gap",
        ),
        pytest.param(
            *(LONDON, "30 1 * * *", ("2026-10-25", "2026-10-25"), BOTH),
            ["25 01:30+01:00", "25 01:30+00:00"],
            id="london-overlap",
        ),
        pytest.param(
            *(HOWE, "15 2 * * *", ("2026-10-04", "2026-10-04"), {}),
            ["04 02:30+11:00"],
            id="lord-howe-gap-of-half-an-hour",
        ),
        pytest.param(
            *(HOWE, "30 * * * *", ("2026-10-04", "2026-10-04"), {}),
            [f"04 {hour:02}:30+{'10:30' if hour < 2 else '11:00'}" for hour in range(24)],
            id="lord-howe-keeps-the-real-half-past-two",
        ),
        pytest.param(
            *(HOWE, "0 */2 * * *", ("2026-04-05", "2026-04-05"), {}),
            [f"05 {hour:02}:00+{'11:00' if hour < 2 else '10:30'}" for hour in range(0, 24, 2)],
            id="lord-howe-overlap-keeps-two-o-clock",
        ),
        pytest.param(
            *(HOWE, "45 1 * * *", ("2026-04-05", "2026-04-05"), BOTH),
            ["05 01:45+11:00", "05 01:45+10:30"],
            id="lord-howe-overlap-both",
        ),
        pytest.param(
            *(SAO_PAULO, "0 0 * * *", ("2018-11-03", "2018-11-05"), {}),
            ["03 00:00-03:00", "04 01:00-02:00", "05 00:00-02:00"],
            id="sao-paulo-has-no-midnight",
        ),
        pytest.param(
            *(SAO_PAULO, "0 0 * * *", ("2018-11-03", "2018-11-05"), SKIP),
            ["03 00:00-03:00", "05 00:00-02:00"],
            id="sao-paulo-no-midnight-skipped",
        ),
        pytest.param(
            *(SAO_PAULO, "0 9 10 * *", ("2018-11-01", "2018-11-30"), {}),
            ["10 09:00-02:00"],
            id="sao-paulo-days-after-the-missing-midnight",
        ),
        pytest.param(
            *(SAO_PAULO, "30 23 * * *", ("2018-02-17", "2018-02-18"), {}),
            ["17 23:30-02:00", "18 23:30-03:00"],
            id="sao-paulo-overlap-before-midnight",
        ),
        pytest.param(
            *(CASABLANCA, "30 2 * * *", ("2026-02-15", "2026-02-15"), BOTH),
            ["15 02:30+01:00", "15 02:30+00:00"],
            id="casablanca-ramadan-begins",
        ),
        pytest.param(
            *(CASABLANCA, "30 2 * * *", ("2026-03-22", "2026-03-22"), {}),
            ["22 03:00+01:00"],
            id="casablanca-ramadan-ends",
        ),
        pytest.param(
            *(APIA, "0 12 * * *", ("2011-12-29", "2011-12-31"), {}),
            ["29 12:00-10:00", "31 00:00+14:00", "31 12:00+14:00"],
            id="apia-a-whole-day-missing-runs-once",
        ),
        pytest.param(
            *(APIA, "0 12 * * *", ("2011-12-29", "2011-12-31"), SKIP),
            ["29 12:00-10:00", "31 12:00+14:00"],
            id="apia-a-whole-day-missing-skipped",
        ),
        pytest.param(
            *(APIA, "0 */12 * * *", ("2011-12-29", "2011-12-31"), {}),
            ["29 00:00-10:00", "29 12:00-10:00", "31 00:00+14:00", "31 12:00+14:00"],
            id="apia-cadence",
        ),
        pytest.param(
            *(APIA, "30 9 * * 5", ("2011-12-23", "2012-01-06"), {}),
            ["23 09:30-10:00", "31 00:00+14:00", "06 09:30+14:00"],
            id="apia-the-friday-that-was-no-day",
        ),
        pytest.param(
            *(APIA, "*/30 22-23 29,30,31 12 *", ("2011-12-29", "2011-12-31"), {}),
            [
                *("29 22:00-10:00", "29 22:30-10:00", "29 23:00-10:00", "29 23:30-10:00"),
                *("31 22:00+14:00", "31 22:30+14:00", "31 23:00+14:00", "31 23:30+14:00"),
            ],
            id="apia-a-step-skips-the-day",
        ),
        pytest.param(
            *("Europe/Dublin", "30 1 * * *", ("2026-03-28", "2026-03-29"), {}),
            ["28 01:30+00:00", "29 02:00+01:00"],
            id="dublin-whose-winter-is-the-exception",
        ),
        pytest.param(
            *("Antarctica/Troll", "30 1,2 * * *", ("2026-03-29", "2026-03-29"), {}),
            ["29 03:00+02:00"],
            id="troll-gap-of-two-hours",
        ),
        pytest.param(
            *("Antarctica/Troll", "30 1,2 * * *", ("2026-10-25", "2026-10-25"), BOTH),
            ["25 01:30+02:00", "25 02:30+02:00", "25 01:30+00:00", "25 02:30+00:00"],
            id="troll-overlap-of-two-hours",
        ),
        pytest.param(
            *("Pacific/Chatham", "50 2 * * *", ("2026-09-26", "2026-09-28"), {}),
            ["26 02:50+12:45", "27 03:45+13:45", "28 02:50+13:45"],
            id="chatham-changes-at-a-quarter-to-three",
        ),
        pytest.param(
            *("Africa/Cairo", "0 0 * * 5", ("2026-04-23", "2026-04-25"), {}),
            ["24 01:00+03:00"],
            id="cairo-friday-without-midnight",
        ),
        pytest.param(
            *("America/Santiago", "0,30 0 * * *", ("2026-09-06", "2026-09-06"), {}),
            ["06 01:00-03:00"],
            id="santiago-has-no-midnight",
        ),
        pytest.param(
            *("America/Havana", "30 0 * * *", ("2024-11-03", "2024-11-03"), {}),
            ["03 00:30-04:00"],
            id="havana-midnight-comes-twice",
        ),
        pytest.param(
            *("America/Havana", "30 0 * * *", ("2024-11-03", "2024-11-03"), SECOND),
            ["03 00:30-05:00"],
            id="havana-midnight-the-second-time",
        ),
        pytest.param(
            *("Asia/Pyongyang", "45 23 * * *", ("2018-05-04", "2018-05-05"), {}),
            ["05 00:00+09:00", "05 23:45+09:00"],
            id="pyongyang-half-an-hour-once",
        ),
        pytest.param(
            *("Africa/Juba", "30 23 * * *", ("2021-01-31", "2021-02-01"), BOTH),
            ["31 23:30+03:00", "31 23:30+02:00", "01 23:30+02:00"],
            id="juba-an-overlap-that-ends-the-month",
        ),
        pytest.param(
            *(NEW_YORK, "0 2 * * *", ("2012-03-10", "2012-03-12"), SKIP),
            ["10 02:00-05:00", "12 02:00-04:00"],
            id="cronjobs-own-table-the-gap",
        ),
        pytest.param(
            *(NEW_YORK, "0 1 * * *", ("2012-11-04", "2012-11-04"), BOTH),
            ["04 01:00-04:00", "04 01:00-05:00"],
            id="cronjobs-own-table-the-overlap",
        ),
        pytest.param(
            *(NEW_YORK, "0 * * * *", ("2012-11-04", "2012-11-04"), {}),
            [
                *("04 00:00-04:00", "04 01:00-04:00", "04 01:00-05:00", "04 02:00-05:00"),
                *(f"04 {hour:02}:00-05:00" for hour in range(3, 24)),
            ],
            id="hourly-goes-on-through-the-overlap",
        ),
        pytest.param(
            *(NEW_YORK, "59 1,2 8 3 *", ("2026-03-07", "2026-03-09"), {}),
            ["08 01:59-05:00", "08 03:00-04:00"],
            id="the-minute-before-the-gap-and-one-in-it",
        ),
        pytest.param(
            *(NEW_YORK, "0 3 8 3 *", ("2026-03-07", "2026-03-09"), SKIP),
            ["08 03:00-04:00"],
            id="the-first-instant-after-the-gap-exists",
        ),
        pytest.param(
            *(NEW_YORK, "30 2 9 3 *", ("2026-03-07", "2026-03-09"), {}),
            ["09 02:30-04:00"],
            id="a-gap-on-a-day-that-does-not-match",
        ),
        pytest.param(
            *("Asia/Kathmandu", "30 2 * * *", ("2026-05-01", "2026-05-01"), {}),
            ["01 02:30+05:45"],
            id="kathmandu",
        ),
        pytest.param(
            *("Etc/GMT+12", "30 2 * * *", ("2026-05-01", "2026-05-01"), {}),
            ["01 02:30-12:00"],
            id="twelve-hours-west",
        ),
    ],
)
def test_slots_of_the_days_of_a_change(zone, text, days, choices, expected):
    assert local_slots(text, zone, *days, **choices) == expected


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
