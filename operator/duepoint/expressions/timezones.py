"""Time zones from the ``tzdata`` package shipped with the program, and from nowhere else.

A short text with a zone's data from 2025 on (``data_of``) is stored with each rule, and ``located``
reads it. So all replicas agree on every slot, whatever their version and the zone files of their
image or node. A zone is known if the package's own list has exactly this name, so no text of a user
ever becomes a file name unchecked. A loaded zone is a list of periods of constant offset; ``cron``
combines them with the user's choices.

This module parses compiled zones (RFC 8536, "TZif") itself: ``zoneinfo`` returns the offset at
an instant, but the engine also needs to know how long it lasts. Transitions are those listed in the
file, then those of its footer, a POSIX TZ rule such as ``EST5EDT,M3.2.0,M11.1.0``, up to a given
year. The tests compare every zone with zoneinfo. Offsets and instants are seconds; an offset is
local time minus UTC.
"""

from __future__ import annotations

import bisect
import calendar
import datetime as dt
import functools
import importlib.resources
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from duepoint import errors
from duepoint.expressions import advice, expression

#: Local days of LAST_US reach into this year at most.
_LAST_YEAR = 2112
_FIRST, _LAST = expression.FIRST_US // 1_000_000, expression.LAST_US // 1_000_000
_NO_BEGINNING = -(1 << 62)

#: Earlier changes are history, which every version has itself.
_SHARED_FROM = 1_735_689_600  # 2025-01-01

#: Most changes to list one by one, some twelve years of them; ``_OWN`` stands for all others.
_MOST_LISTED = 24
_OWN = "*"

#: A placeholder in the database for "no zone was chosen".
_NOT_A_PLACE = "Factory"


@dataclass(frozen=True, slots=True, eq=False)
class Zone:
    """Periods of constant offset, in seconds; loaded once, so compared by identity.

    Attributes:
        name: the name in the IANA database.
        starts: the UTC second when each period begins; the first is before every slot.
        offsets: local time minus UTC in each period.
        footer: the POSIX TZ rule that the last periods follow.
    """

    name: str
    starts: tuple[int, ...]
    offsets: tuple[int, ...]
    footer: str = ""

    def offset_at(self, second: int) -> int:
        """Return local time minus UTC at this UTC second."""
        return self.offsets[bisect.bisect_right(self.starts, second) - 1]

    def changes_after(self, second: int) -> Iterator[tuple[int, int, int]]:
        """Yield each later change of the clock: the instant, the offset before and after."""
        for index in range(max(1, bisect.bisect_right(self.starts, second)), len(self.starts)):
            yield self.starts[index], self.offsets[index - 1], self.offsets[index]


def is_known(zone: str) -> bool:
    """Whether the shipped database has a zone of exactly this name."""
    return zone in known_names()


@functools.cache
def known_names() -> frozenset[str]:
    """Return every zone name of the shipped database, links included."""
    listed = importlib.resources.files("tzdata").joinpath("zones").read_text("ascii")
    return frozenset(listed.split()) - {_NOT_A_PLACE}


@functools.cache
def load(zone: str) -> Zone:
    """Load a zone; raises InvalidExpression about the field timeZone."""
    if not zone.strip():
        raise errors.InvalidExpression(
            "the time zone is empty",
            field="timeZone",
            hint="leave timeZone out for Etc/UTC",
        )
    if not is_known(zone):
        raise errors.InvalidExpression(
            f"the time zone {errors.quoted(zone)} is not in the IANA database of this version",
            field="timeZone",
            hint=advice.for_zone(zone, known_names()),
        )
    data = importlib.resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()
    before, changes, footer = parse_tzif(data)
    # Keep only the periods that can have slots; the oldest has no beginning.
    for when, offset in changes:
        if when <= _FIRST:
            before = offset
    later = [change for change in changes if _FIRST < change[0] <= _LAST]
    starts, offsets = zip((_NO_BEGINNING, before), *later, strict=True)
    return Zone(zone, starts, offsets, footer)


@functools.lru_cache(maxsize=1024)
def data_of(zone: str) -> str:
    """Return this version's data of the zone from 2025 on; empty if it is UTC from then on.

    ``OFFSET;WHEN:OFFSET,...;FOOTER``: the offset at the beginning of 2025, the changes that follow
    no rule, and the rule for all later ones. If very many follow no rule (Morocco's, by the moon),
    only the first are listed, and ``*`` stands for each version's own later ones.

    Raises as ``load``.
    """
    known = load(zone)
    offset = known.offset_at(_SHARED_FROM)
    changes = _changes_after(known, _SHARED_FROM)
    if not changes:
        return f"{offset};;" if offset else ""
    # List as few changes as possible: the rule mostly produces all of them.
    for count in range(min(len(changes), _MOST_LISTED) + 1):
        if _ruled(offset, changes[:count], known.footer) == changes:
            return f"{offset};{_listed(changes[:count])};{known.footer}"
    return f"{offset};{_listed(changes[:_MOST_LISTED])};{_OWN}"


def _listed(changes: Changes) -> str:
    return ",".join(f"{when}:{after}" for when, after in changes)


@functools.lru_cache(maxsize=1024)
def located(name: str, data: str) -> Zone:
    """Return the zone of a name with the data that ``data_of`` wrote; without data, ``load`` it.

    The data apply from 2025 on; earlier changes are our own. Data in the format of a later version
    are ignored.
    """
    own = Zone(name, (_NO_BEGINNING,), (0,))
    if not data or is_known(name):
        own = load(name)
        if data in ("", data_of(name)):
            return own
    try:
        offset_text, listed_text, footer = data.split(";")
        offset = int(offset_text)
        pairs = [part.split(":") for part in listed_text.split(",") if part]
        listed = [(int(when), int(after)) for when, after in pairs]
        if footer == _OWN:
            changes = listed + _changes_after(own, listed[-1][0] if listed else _SHARED_FROM)
        else:
            changes = _ruled(offset, listed, footer)
    except ValueError:
        return own
    periods = zip(own.starts, own.offsets, strict=True)
    earlier = [period for period in periods if period[0] < _SHARED_FROM]
    if earlier[-1][1] != offset:
        earlier.append((_SHARED_FROM, offset))
    starts, offsets = zip(*earlier, *changes, strict=True)
    return Zone(name, starts, offsets, footer)


def _ruled(offset: int, listed: Changes, footer: str) -> Changes:
    """Return the changes from 2025 on: those listed, then those of the rule."""
    latest = listed[-1][0] if listed else _SHARED_FROM
    ruled = changes_by_rule(footer, latest)
    return [one for one in only_real(offset, [*listed, *ruled]) if one[0] <= _LAST]


def _changes_after(zone: Zone, second: int) -> Changes:
    return [(when, after) for when, _, after in zone.changes_after(second)]


# -- the bytes of a zone (RFC 8536) --------------------------------------------------------------

_HEADER = struct.Struct(">4sc15x6L")
_DAY = 86_400
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)"
_CLOCK = r"[+-]?\d{1,3}(?::\d\d){0,2}"
_FOOTER = re.compile(
    rf"{_NAME}(?P<std>{_CLOCK})(?:{_NAME}(?P<dst>{_CLOCK})?,(?P<begin>[^,]+),(?P<end>[^,]+))?"
)

#: (first instant, offset), in order.
Changes = list[tuple[int, int]]


def parse_tzif(data: bytes) -> tuple[int, Changes, str]:
    """Return the offset before the first change, the changes to the last year, and the footer.

    The footer is the POSIX TZ rule for the time after the listed changes; empty for none.

    Raises:
        ValueError: the bytes are not a TZif file of version 2 or later.
    """
    start, _ = _block(data, 0, width=4)
    end, (first_offset, changes) = _block(data, start, width=8)
    footer = data[end:].strip(b"\n").decode("ascii")
    latest = changes[-1][0] if changes else None
    changes += changes_by_rule(footer, latest)
    return first_offset, only_real(first_offset, changes), footer


def _block(data: bytes, at: int, *, width: int) -> tuple[int, tuple[int, Changes]]:
    header = _HEADER.unpack_from(data, at)
    magic, version, utc_marks, std_marks, leaps, times, kinds, letters = header
    if magic != b"TZif" or version < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    at += _HEADER.size
    instants = struct.unpack_from(f">{times}{'l' if width == 4 else 'q'}", data, at)
    at += times * width
    kind_of = struct.unpack_from(f">{times}B", data, at)
    at += times
    offsets = [struct.unpack_from(">lBB", data, at + 6 * kind)[0] for kind in range(kinds)]
    at += 6 * kinds + letters + leaps * (width + 4) + std_marks + utc_marks
    changes = [(when, offsets[kind]) for when, kind in zip(instants, kind_of, strict=True)]
    return at, (offsets[0], changes)


def only_real(first_offset: int, changes: Changes) -> Changes:
    """Return the changes that move the clock; others change only a name or a flag."""
    steps = pairwise([(0, first_offset), *changes])
    return [after for before, after in steps if before[1] != after[1]]


def changes_by_rule(footer: str, latest: int | None) -> Changes:
    """Return the changes of a footer's rule after the last listed one; raises ValueError."""
    if not footer:
        return []
    rule = _FOOTER.fullmatch(footer)
    if rule is None:
        raise ValueError(f"the POSIX TZ rule {footer!r} has an unknown form")
    standard = -_seconds(rule["std"])
    if rule["begin"] is None:
        return [] if latest is None else [(latest + 1, standard)]
    summer = -_seconds(rule["dst"]) if rule["dst"] else standard + 3_600
    first_year = 1970 if latest is None else dt.datetime.fromtimestamp(latest, dt.UTC).year
    changes = [
        change
        for year in range(first_year, _LAST_YEAR + 1)
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
    """Return the local second, from 1970, when a rule such as ``M3.2.0/2`` applies."""
    date, _, clock = rule.partition("/")
    return _day(date, year) * _DAY + _seconds(clock or "2")


def _day(date: str, year: int) -> int:
    if date.startswith("M"):
        month, week, weekday = (int(part) for part in date[1:].split("."))
        first = dt.date(year, month, 1)
        day = first.toordinal() + (weekday - first.isoweekday()) % 7
        month_end = first.toordinal() + calendar.monthrange(year, month)[1]
        in_month = range(day, month_end, 7)
        return in_month[:week][-1] - _EPOCH_DAY
    number = int(date.lstrip("J"))
    leap = dt.date(year, 12, 31).timetuple().tm_yday == 366
    if date.startswith("J"):  # 1..365, February 29 is never counted
        number += -1 if not leap or number < 60 else 0
    return dt.date(year, 1, 1).toordinal() + number - _EPOCH_DAY
