"""The seven fields of a cron expression, and what reading one of them gives.

Sets of values are bit masks: bit v is set when v matches. What the masks mean for days is days.py's
matter; how text becomes Values is syntax.py's.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FieldKind:
    """One of the seven fields; there are no others, so compared by identity.

    Attributes:
        name: as users and error messages call it; also what H hashes.
        low, high: the smallest and the largest value.
        names: words for the values from ``low`` on, in capitals.
        hash_high: the largest value that H chooses; None where H means nothing.
        unit: the unit in which ``@every`` would spell a step too large for the field, or empty.
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
        """The mask of all values."""
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
    """The values in a mask, in order."""
    return tuple([value for value in range(mask.bit_length()) if mask >> value & 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What one field matches.

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
