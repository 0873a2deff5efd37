"""Which days of a year match, from the day-of-month, month, day-of-week and year fields.

The rule of cron, as CronJob applies it: when both day fields are restricted either may match; when
one of them is unrestricted (``*``, ``?``) both must. Days are counted from 1970-01-01 as day 0.
Weekdays count from Sunday as 0.

Days of one month are worked out as the bits 1..31 of one number, so that every special form
(``L``, ``15W``, ``5L``, ``1#2``) is one more mask to join. But for a list of years, the days of a
year depend on its *kind* alone: the weekday of its first day and whether it has a leap day. There
are 14 kinds, so a rule is worked out 14 times at most, however far a question looks.
"""

from __future__ import annotations

import calendar
import datetime as dt
import functools
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.expressions import fields

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_SUNDAY, _SATURDAY = 0, 6
_EVERY_DAY = 0xFFFF_FFFE
_EVERY_MONTH = 0x1FFE
_SIX_WEEKS = sum(1 << 7 * week for week in range(6))
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRule:
    """The day part of an expression; ``years`` are those listed, or None for all."""

    day: fields.Values
    months: int
    weekday: fields.Values
    years: frozenset[int] | None = None

    @property
    def is_every_day(self) -> bool:
        return self.day.starred and self.weekday.starred and self.months == _EVERY_MONTH


@functools.cache
def kind_of(year: int) -> int:
    """The kind of the year: the weekday of January 1, and 7 more in a leap year."""
    return (first_day_of(year) + 4) % 7 + 7 * calendar.isleap(year)  # day 0 was a Thursday


@functools.lru_cache(maxsize=8192)
def matching_days(rule: DayRule, kind: int) -> Sequence[int]:
    """The matching days of a year of this kind, in order, January 1 being 0; any listed year."""
    if rule.is_every_day:
        return _every_day(kind)
    matching: list[int] = []
    weekday, leap = kind % 7, kind >= 7
    before = 0
    for month in range(1, 13):
        length = 29 if leap and month == 2 else _LENGTHS[month]
        if rule.months >> month & 1:
            first = (weekday + before) % 7
            by_day = _by_day_of_month(rule, first, length)
            by_weekday = _by_weekday(rule, first, length)
            is_free = rule.day.starred or rule.weekday.starred
            bits = by_day & by_weekday if is_free else by_day | by_weekday
            matching += [before + day - 1 for day in range(1, length + 1) if bits >> day & 1]
        before += length
    return array("h", matching)  # 750 bytes at most; a tuple of numbers would take 14 KB


@functools.cache
def _every_day(kind: int) -> Sequence[int]:
    return array("h", range(365 + (kind >= 7)))


@functools.cache
def first_day_of(year: int) -> int:
    """January 1 of the year as a day number."""
    return dt.date(year, 1, 1).toordinal() - _EPOCH_DAY


def year_of(day: int) -> int:
    """The year in which the day lies."""
    return dt.date.fromordinal(day + _EPOCH_DAY).year


def _by_day_of_month(rule: DayRule, weekday_of_first: int, length: int) -> int:
    matching = rule.day.mask & (1 << length + 1) - 1
    if rule.day.last:
        matching |= 1 << length
    if rule.day.last_workday:
        matching |= 1 << _nearest_workday(length, weekday_of_first, length)
    if rule.day.nearest:
        for day in range(1, 32):
            if rule.day.nearest >> day & 1:
                matching |= 1 << _nearest_workday(min(day, length), weekday_of_first, length)
    return matching


def _nearest_workday(day: int, weekday_of_first: int, length: int) -> int:
    """The working day nearest to the day, without leaving the month."""
    weekday = (weekday_of_first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(rule: DayRule, weekday_of_first: int, length: int) -> int:
    whole_month = (1 << length + 1) - 2
    matching = _such_weekdays(rule.weekday.mask, weekday_of_first)
    if rule.weekday.last_weekdays:
        last_seven = _EVERY_DAY << length - 7
        matching |= _such_weekdays(rule.weekday.last_weekdays, weekday_of_first) & last_seven
    for weekday, n in rule.weekday.nth_weekdays:
        nth_seven = 0b1111_1110 << 7 * (n - 1)
        matching |= _such_weekdays(1 << weekday, weekday_of_first) & nth_seven
    return matching & whole_month


def _such_weekdays(weekdays: int, weekday_of_first: int) -> int:
    """Bits 1.. of the days whose weekday is in the mask."""
    return weekdays * _SIX_WEEKS >> weekday_of_first << 1
