"""The interface of compiled expressions, and the range of time that they cover.

An expression names *slots*: instants when a Schedule is due, in microseconds since the epoch,
UTC. Nothing here reads a clock; callers pass the instant. Results depend only on the arguments, so
any number of Schedules may share one object.

Slots lie between FIRST_US and LAST_US, both included. The upper end is the largest time the queue
stores without rounding (sorted-set scores are doubles and some of their bits carry other things);
beyond it there are no slots.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterator
from typing import Protocol

#: Microseconds in a second; cron slots are whole seconds.
SECOND_US = 1_000_000

#: 1970-01-01T00:00:00Z, the earliest slot.
FIRST_US = 0

#: 2112-09-17T23:53:47.370496Z, the latest slot.
LAST_US = 1 << 52

_EPOCH = dt.date(1970, 1, 1)
_TWO_DIGITS = tuple(f"{number:02}" for number in range(60))


def utc_text(instant_us: int) -> str:
    """Return the instant as RFC 3339 in UTC, with as many digits as needed."""
    seconds, fraction = divmod(instant_us, SECOND_US)
    day, second = divmod(seconds, 86_400)
    minute = second // 60
    hours, minutes = _TWO_DIGITS[minute // 60], _TWO_DIGITS[minute % 60]
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{_date_text(day)}T{hours}:{minutes}:{_TWO_DIGITS[second % 60]}{digits}Z"


@functools.lru_cache(maxsize=1_024)
def _date_text(day: int) -> str:
    """Return the date that is ``day`` days after 1970-01-01."""
    return (_EPOCH + dt.timedelta(days=day)).isoformat()


def offset_seconds(text: str) -> int:
    """Return local time minus UTC from ``Z`` or ``+01:00``; raises ValueError if out of range."""
    if text in "Zz":
        return 0
    hours, minutes = int(text[1:3]), int(text[4:])
    if hours > 23 or minutes > 59:
        raise ValueError(f"there is no offset {text}")
    seconds = hours * 3_600 + minutes * 60
    return -seconds if text[0] == "-" else seconds


class Expression(Protocol):
    """The slots of one schedule text, or of several together, in order."""

    def next_after(self, instant_us: int) -> int | None:
        """Return the first slot strictly after the instant, or None if there is none left."""
        ...

    def previous_before(self, instant_us: int) -> int | None:
        """Return the last slot strictly before the instant, or None if there was none."""
        ...

    def count_between(self, after_us: int, through_us: int) -> int:
        """Return the number of slots in ``(after_us, through_us]`` without visiting each one."""
        ...

    def describe(self) -> str:
        """Return one line of plain words, such as ``at 02:30 every day, Europe/Rome``."""
        ...


def walk(expression: Expression, after_us: int, through_us: int) -> Iterator[int]:
    """Yield the slots in ``(after_us, through_us]``, in order."""
    slot_us = expression.next_after(after_us)
    while slot_us is not None and slot_us <= through_us:
        yield slot_us
        slot_us = expression.next_after(slot_us)
