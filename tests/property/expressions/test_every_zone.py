"""Every zone of the shipped database, against zoneinfo and against itself."""

import bisect

from duepoint.expressions import compile_expression, expression, timezones
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
    assert len(DISTINCT) > 100
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
    # Otherwise an overlap would reach over more than two stretches, which the engine never expects.
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
