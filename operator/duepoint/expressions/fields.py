"""The seven fields of a cron expression, their values, and the matching days of a year.

Sets of values are bit masks: bit v is set if v matches. syntax.py parses text to Values. The rule
of days is cron's, as CronJob applies it: if both day fields are restricted, either may match; if
one of them is unrestricted (``*``, ``?``), both must. Day 0 is 1970-01-01; weekday 0 is Sunday.

The days of a month are the bits 1..31 of one number, so that every special form (``L``, ``15W``,
``5L``, ``1#2``) is one more mask to join. Apart from a list of years, the matching days of a year
depend only on its *kind*: the weekday of its first day and whether it has a leap day. There are 14
kinds, so a rule is evaluated at most 14 times, however far ahead a search goes.
"""

from __future__ import annotations

import calendar
import dataclasses
import datetime as dt
import functools
import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldKind:
    """One of the seven fields; there are no others, so compared by identity.

    Attributes:
        name: the name in error messages; also an input of H's hash.
        low, high: the smallest and the largest value.
        names: words for the values from ``low`` on, in capitals.
        hash_high: the largest value that H chooses; None if the field has no H.
        unit: the unit for ``@every`` in the hint for a step that is too large, or empty.
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    hash_high: int | None = None
    unit: str = ""

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def full(self) -> int:
        """Return the mask of all values."""
        return (1 << self.high + 1) - (1 << self.low)


SECOND = FieldKind(name="second", low=0, high=59, hash_high=59, unit="s")
MINUTE = FieldKind(name="minute", low=0, high=59, hash_high=59, unit="m")
HOUR = FieldKind(name="hour", low=0, high=23, hash_high=23, unit="h")
DAY = FieldKind(name="day-of-month", low=1, high=31, hash_high=28, unit="d")
MONTH = FieldKind(name="month", low=1, high=12, names=_MONTHS, hash_high=12)
WEEKDAY = FieldKind(name="day-of-week", low=0, high=6, names=_WEEKDAYS, hash_high=6)
YEAR = FieldKind(name="year", low=1970, high=2099)


@functools.lru_cache(maxsize=1024)
def values_of(mask: int) -> tuple[int, ...]:
    """Return the values in a mask, in order."""
    return tuple([value for value in range(mask.bit_length()) if mask >> value & 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The values that one field matches.

    Attributes:
        mask: the plain values.
        starred: an item is ``*`` or ``?`` (or either with a step of 1): the field is unrestricted.
        sweeping: an item is a wildcard, or a step over the whole range, or all values are listed.
        last, last_workday, nearest: ``L``, ``LW`` and the days written with ``W``.
        last_weekdays, nth_weekdays: ``5L`` as a mask, ``1#2`` as pairs (weekday, n).
    """

    mask: int = 0
    starred: bool = False
    sweeping: bool = False
    last: bool = False
    last_workday: bool = False
    nearest: int = 0
    last_weekdays: int = 0
    nth_weekdays: frozenset[tuple[int, int]] = frozenset()

    def joined(self, other: Values) -> Values:
        names = (field.name for field in dataclasses.fields(self))
        return Values(**{name: getattr(self, name) | getattr(other, name) for name in names})


# -- H -------------------------------------------------------------------------------------------


def digest(identity: str, subject: str) -> int:
    """Return an unsigned 64-bit hash of ``identity`` LF ``subject``."""
    hashed = hashlib.sha256(f"{identity}\n{subject}".encode()).digest()
    return int.from_bytes(hashed[:8], "big")


def hashed_value(identity: str, field: str, low: int, high: int) -> int:
    """Return the value in ``low..high`` of an H field for this identity (``namespace/name``)."""
    return low + digest(identity, field) % (high - low + 1)


# -- days ----------------------------------------------------------------------------------------

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_SUNDAY, _SATURDAY = 0, 6
_EVERY_DAY = 0xFFFF_FFFE
_EVERY_MONTH = 0x1FFE
_SIX_WEEKS = sum(1 << 7 * week for week in range(6))
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRule:
    """The day part of an expression; ``years``: the listed ones, or None for all."""

    day: Values
    months: int
    weekday: Values
    years: frozenset[int] | None = None

    @property
    def is_every_day(self) -> bool:
        return self.day.starred and self.weekday.starred and self.months == _EVERY_MONTH


@functools.cache
def kind_of(year: int) -> int:
    """Return the kind of the year: the weekday of January 1, plus 7 in a leap year."""
    return (first_day_of(year) + 4) % 7 + 7 * calendar.isleap(year)  # day 0 was a Thursday


@functools.lru_cache(maxsize=8192)
def matching_days(rule: DayRule, kind: int) -> Sequence[int]:
    """Return the matching days of a year of this kind, January 1 being 0; ignores ``years``."""
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
def first_day_of(year: int) -> int:
    """Return January 1 of the year as a day number."""
    return dt.date(year, 1, 1).toordinal() - _EPOCH_DAY


def year_of(day: int) -> int:
    """Return the year of a day number."""
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
    """Return the working day of this month that is nearest to the day."""
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
    """Return a mask, from bit 1, of the days whose weekday is in ``weekdays``."""
    return weekdays * _SIX_WEEKS >> weekday_of_first << 1
