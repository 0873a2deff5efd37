"""The bytes of a compiled time zone (RFC 8536, "TZif") as a list of changes of the UTC offset.

``zoneinfo`` answers "what is the offset then?"; the engine asks "until when does it stay?", which
zoneinfo does not tell. So the transitions are read here: those listed in the file, then those that
its footer, a POSIX TZ rule such as ``EST5EDT,M3.2.0,M11.1.0``, produces up to a given year. The
tests compare every zone with zoneinfo.

Offsets and instants are seconds; an offset is what is added to UTC to get local time.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Iterator
from itertools import pairwise

_HEADER = struct.Struct(">4sc15x6L")
_DAY = 86_400
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)"
_CLOCK = r"[+-]?\d{1,3}(?::\d\d){0,2}"
_FOOTER = re.compile(
    rf"{_NAME}(?P<std>{_CLOCK})(?:{_NAME}(?P<dst>{_CLOCK})?,(?P<begin>[^,]+),(?P<end>[^,]+))?"
)

#: (instant from which it holds, offset), in order.
Changes = list[tuple[int, int]]


def parse(data: bytes, *, through_year: int) -> tuple[int, Changes]:
    """The offset before the first change, and the changes up to the end of the year.

    Raises:
        ValueError: the bytes are no TZif file of version 2 or later.
    """
    start, _ = _block(data, 0, width=4)
    end, (first_offset, changes) = _block(data, start, width=8)
    latest = changes[-1][0] if changes else None
    changes += ruled(_footer(data, end), latest, through_year)
    return first_offset, only_real(first_offset, changes)


def footer(data: bytes) -> str:
    """The POSIX TZ rule for what comes after the listed changes; empty where there is none.

    Raises:
        ValueError: the bytes are no TZif file of version 2 or later.
    """
    start, _ = _block(data, 0, width=4)
    end, _ = _block(data, start, width=8)
    return _footer(data, end)


def _footer(data: bytes, at: int) -> str:
    return data[at:].strip(b"\n").decode("ascii")


def _block(data: bytes, at: int, *, width: int) -> tuple[int, tuple[int, Changes]]:
    magic, version, _, _, leaps, times, kinds, letters = (*_HEADER.unpack_from(data, at),)
    if magic != b"TZif" or version < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    at += _HEADER.size
    counts = _HEADER.unpack_from(data, at - _HEADER.size)[2:]
    utc_marks, std_marks = counts[0], counts[1]
    instants = struct.unpack_from(f">{times}{'l' if width == 4 else 'q'}", data, at)
    at += times * width
    kind_of = struct.unpack_from(f">{times}B", data, at)
    at += times
    offsets = [struct.unpack_from(">lBB", data, at + 6 * kind)[0] for kind in range(kinds)]
    at += 6 * kinds + letters + leaps * (width + 4) + std_marks + utc_marks
    changes = [(when, offsets[kind]) for when, kind in zip(instants, kind_of, strict=True)]
    return at, (offsets[0], changes)


def only_real(first_offset: int, changes: Changes) -> Changes:
    """The changes that move the clock: others change only a name or a flag."""
    steps = pairwise([(0, first_offset), *changes])
    return [after for before, after in steps if before[1] != after[1]]


def ruled(footer: str, latest: int | None, through_year: int) -> Changes:
    """The changes that a footer's rule makes after the last listed one.

    Raises:
        ValueError: it is no such rule.
    """
    if not footer:
        return []
    rule = _FOOTER.fullmatch(footer)
    if rule is None:
        raise ValueError(f"the POSIX TZ rule {footer!r} is of a form that is not known here")
    standard = -_seconds(rule["std"])
    if rule["begin"] is None:
        return [] if latest is None else [(latest + 1, standard)]
    summer = -_seconds(rule["dst"]) if rule["dst"] else standard + 3_600
    first_year = 1970 if latest is None else dt.datetime.fromtimestamp(latest, dt.UTC).year
    changes = [
        change
        for year in range(first_year, through_year + 1)
        for change in (
            (_local(rule["begin"], year) - standard, summer),
            (_local(rule["end"], year) - summer, standard),
        )
    ]
    return sorted(change for change in changes if latest is None or change[0] > latest)


def _seconds(clock: str) -> int:
    sign = -1 if clock.startswith("-") else 1
    parts = [int(part) for part in clock.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (3_600, 60, 1), strict=False))


def _local(rule: str, year: int) -> int:
    """The local second, counted from 1970, at which a rule such as ``M3.2.0/2`` strikes."""
    date, _, clock = rule.partition("/")
    return _day(date, year) * _DAY + _seconds(clock or "2")


def _day(date: str, year: int) -> int:
    if date.startswith("M"):
        month, week, weekday = (int(part) for part in date[1:].split("."))
        return list(_weekdays_of(year, month, weekday))[:week][-1] - _EPOCH_DAY
    number = int(date.lstrip("J"))
    leap = dt.date(year, 12, 31).timetuple().tm_yday == 366
    if date.startswith("J"):  # 1..365, February 29 is never counted
        number += -1 if not leap or number < 60 else 0
    return dt.date(year, 1, 1).toordinal() + number - _EPOCH_DAY


def _weekdays_of(year: int, month: int, weekday: int) -> Iterator[int]:
    """The ordinals of all such weekdays (Sunday is 0) of a month."""
    first = dt.date(year, month, 1)
    day = first.toordinal() + (weekday - first.isoweekday()) % 7
    while dt.date.fromordinal(day).month == month:
        yield day
        day += 7
