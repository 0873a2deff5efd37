"""The matching local times of a cron expression, before any zone: days x times of day.

Both are sorted sequences, so the next, the previous and the number of matches are a few binary
searches. Matching days are cached by kind of year. Times of day are the starts of matching minutes
and the matching seconds in a minute. Local times are seconds since 1970-01-01T00:00:00 by the wall
clock. This is the hot path of the program: the aim is 1 us a step, so the style is plain.
"""

from __future__ import annotations

import functools
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from duepoint.expressions import fields, syntax

_DAY = 86_400

#: The starts of the minutes of a day, in seconds.
_EVERY_MINUTE = array("I", range(0, _DAY, 60))

#: Local years that can have a slot: LAST_US is in 2112, and zones reach a day to both sides.
FIRST_YEAR, LAST_YEAR = 1969, 2112

#: Local times beyond all others, which stand for "no match".
BEYOND = 1 << 60
BEFORE = -BEYOND


class Pattern:
    """The matching local times; immutable to its users, but caches the last used year.

    Attributes:
        per_day: how many times of day match.
    """

    __slots__ = ("_earliest", "_in_minute", "_latest", "_minutes", "_rule", "_year", "per_day")

    def __init__(self, parsed: syntax.CronFields) -> None:
        self._rule = parsed.day_rule
        self._minutes = _minutes_of_day(parsed.hours, parsed.minutes)
        self._in_minute = fields.values_of(parsed.seconds)
        self._earliest = self._minutes[0] + self._in_minute[0]
        self._latest = self._minutes[-1] + self._in_minute[-1]
        self.per_day = len(self._minutes) * len(self._in_minute)
        self._year: tuple[int, int, Sequence[int]] = (0, 0, ())

    @property
    def size_bytes(self) -> int:
        """Return the most bytes that its times and the days of a year can take."""
        days = 0 if self._rule.is_every_day else 2 * 366
        return len(self._minutes) * self._minutes.itemsize + days

    def first_from(self, local: int) -> int:
        """Return the first match at or after the local time, else BEYOND."""
        day, time = divmod(local, _DAY)
        begin, end, matching = self._year
        if not begin <= day < end:
            begin, end, matching = self._turn_to(day)
        at = bisect_left(matching, day - begin)
        if at < len(matching):
            if matching[at] != day - begin:
                return (begin + matching[at]) * _DAY + self._earliest
            if time <= self._latest:
                return day * _DAY + self._time_from(time)
            if at + 1 < len(matching):
                return (begin + matching[at + 1]) * _DAY + self._earliest
        return self._first_after_year(end)

    def last_until(self, local: int) -> int:
        """Return the last match at or before the local time, else BEFORE."""
        day, time = divmod(local, _DAY)
        begin, end, matching = self._year
        if not begin <= day < end:
            begin, end, matching = self._turn_to(day)
        at = bisect_right(matching, day - begin) - 1
        if at >= 0:
            if matching[at] != day - begin:
                return (begin + matching[at]) * _DAY + self._latest
            if time >= self._earliest:
                return day * _DAY + self._time_until(time)
            if at > 0:
                return (begin + matching[at - 1]) * _DAY + self._latest
        return self._last_before_year(begin)

    def count(self, local_from: int, local_to: int) -> int:
        """Return the number of matches in ``[local_from, local_to)``."""
        if local_to <= local_from:
            return 0
        first, first_time = divmod(local_from, _DAY)
        last, last_time = divmod(local_to, _DAY)
        begin, end, matching = self._year
        if not begin <= first < end:
            begin, end, matching = self._turn_to(first)
        if last < end:  # most calls concern one year
            low, high = bisect_left(matching, first - begin), bisect_left(matching, last - begin)
            in_first = low < len(matching) and matching[low] == first - begin
            in_last = high < len(matching) and matching[high] == last - begin
            whole_days = high - low
        else:
            whole_days = self._number_of_days(first, last)
            in_first, in_last = (self._number_of_days(day, day + 1) > 0 for day in (first, last))
        return (
            whole_days * self.per_day
            + (in_last and self._times_before(last_time))
            - (in_first and self._times_before(first_time))
        )

    def _time_from(self, time: int) -> int:
        """Return the first matching time of day from ``time`` on; ``time`` <= the latest match."""
        second = time % 60
        minute = time - second
        in_minute = self._in_minute
        if second > in_minute[-1]:
            minute += 60
            second = 0
        found = self._minutes[bisect_left(self._minutes, minute)]
        if found != minute:
            return found + in_minute[0]
        return minute + in_minute[bisect_left(in_minute, second)]

    def _time_until(self, time: int) -> int:
        second = time % 60
        minute = time - second
        in_minute = self._in_minute
        if second < in_minute[0]:
            minute -= 60
            second = 59
        found = self._minutes[bisect_right(self._minutes, minute) - 1]
        if found != minute:
            return found + in_minute[-1]
        return minute + in_minute[bisect_right(in_minute, second) - 1]

    def _times_before(self, time: int) -> int:
        second = time % 60
        minute = time - second
        at = bisect_left(self._minutes, minute)
        count = at * len(self._in_minute)
        if at < len(self._minutes) and self._minutes[at] == minute:
            count += bisect_left(self._in_minute, second)
        return count

    def _number_of_days(self, first: int, last: int) -> int:
        """Return the number of matching days in ``[first, last)``."""
        count = 0
        for year in range(fields.year_of(first), fields.year_of(last) + 1):
            begin, matching = fields.first_day_of(year), self._days_of(year)
            count += bisect_left(matching, last - begin) - bisect_left(matching, first - begin)
        return count

    def _turn_to(self, day: int) -> tuple[int, int, Sequence[int]]:
        """Cache the year of the day, in one assignment so that threads may share the pattern."""
        year = fields.year_of(day)
        self._year = (fields.first_day_of(year), fields.first_day_of(year + 1), self._days_of(year))
        return self._year

    def _days_of(self, year: int) -> Sequence[int]:
        """Return the matching days of the year, January 1 being 0."""
        if self._rule.years is not None and year not in self._rule.years:
            return ()
        return fields.matching_days(self._rule, fields.kind_of(year))

    def _first_after_year(self, end: int) -> int:
        for year in range(fields.year_of(end), LAST_YEAR + 1):
            if matching := self._days_of(year):
                first_day = fields.first_day_of(year)
                self._year = (first_day, fields.first_day_of(year + 1), matching)
                return (first_day + matching[0]) * _DAY + self._earliest
        return BEYOND

    def _last_before_year(self, begin: int) -> int:
        for year in range(fields.year_of(begin) - 1, FIRST_YEAR - 1, -1):
            if matching := self._days_of(year):
                return (fields.first_day_of(year) + matching[-1]) * _DAY + self._latest
        return BEFORE


@functools.lru_cache(maxsize=4096)
def _minutes_of_day(hours: int, minutes: int) -> array[int]:
    """Return the starts of the matching minutes, in seconds of the day; patterns share them."""
    of_day, of_hour = fields.values_of(hours), fields.values_of(minutes)
    step = 60 // len(of_hour)
    is_even = of_hour == tuple(range(of_hour[0], of_hour[0] + 60, step))
    if is_even and of_day[-1] - of_day[0] < len(of_day):  # such as */5 9-17
        return _EVERY_MINUTE[60 * of_day[0] + of_hour[0] : 60 * (of_day[-1] + 1) : step]
    in_hour = [60 * minute for minute in of_hour]
    return array("I", [hour * 3_600 + minute for hour in of_day for minute in in_hour])
