"""Instants as people write them on a command line, and as we write them back.

In: RFC 3339 with ``Z`` or an offset, or without one, which means the wall clock of the zone that
was asked for; ``yesterday``, ``today`` and ``tomorrow`` of that clock instead of a date; a date
alone is its midnight; ``now``; of a slot also a time of day. A wall-clock time that daylight saving
skips is the first instant after the gap, one that comes twice is the first of the two. Out: RFC
3339 in UTC and in the zone, always naming the same instant. Zones are those of the engine.
"""

from __future__ import annotations

import datetime as dt
import re
import time

from duepoint import errors
from duepoint.expressions import expression, timezones

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_CLOCK_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WRITTEN = re.compile(
    rf"(?P<date>\d{{4,}}-\d\d-\d\d|{'|'.join(_DAYS)})"
    r"(?:[T ](?P<time>\d?\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d{1,9}))?"
    r"(?P<offset>Z|[+-]\d\d:\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_EXAMPLE = "write RFC 3339, such as 2026-03-29T00:00:00Z or 2026-03-29T02:00:00+01:00"


def now_us() -> int:
    """This machine's UTC: the only clock that the commands without a cluster read."""
    return time.time_ns() // 1_000


def parse_us(text: str, *, zone: str, name: str) -> int:
    """Microseconds since the epoch; raises errors.InvalidSetting that names the option ``name``."""
    try:
        instant_us = _placed_us(text, zone)
        if not expression.FIRST_US <= instant_us <= expression.LAST_US:
            raise _does_not_exist(text, "the years are 1970 to 2112")
    except ValueError as error:
        raise errors.InvalidSetting(name, str(error)) from None
    return instant_us


def parse_last_us(text: str, *, zone: str, name: str) -> int:
    """As ``parse_us``; a time of day alone, such as ``02:30``, is the last one that has passed."""
    if not _TIME_OF_DAY.fullmatch(text.strip()):
        return parse_us(text, zone=zone, name=name)
    today_us = parse_us(f"today {text.strip()}", zone=zone, name=name)
    if today_us <= now_us():
        return today_us
    return parse_us(f"yesterday {text.strip()}", zone=zone, name=name)


def readable(text: str) -> str:
    """Return the text, if ``parse_us`` can read it once the zone is known; raises ValueError."""
    _placed_us(text, "Etc/UTC")
    return text


def readable_last(text: str) -> str:
    """The text, if ``parse_last_us`` can read it once the zone is known; raises ValueError."""
    if _TIME_OF_DAY.fullmatch(text.strip()):
        return text
    try:
        return readable(text)
    except ValueError as error:
        if _WRITTEN.fullmatch(text.strip()):
            raise  # a time, which does not exist
        raise ValueError(f"{error}, or HH:MM for the last one, or yesterday HH:MM") from None


def parse_range_us(text: str, *, zone: str, name: str) -> tuple[int, int]:
    """Both ends of FROM/TO, the first one earlier."""
    first, slash, last = text.partition("/")
    if not slash:
        raise errors.InvalidSetting(
            name, f"{errors.quoted(text)} is no range; write FROM/TO, both as RFC 3339"
        )
    from_us = parse_us(first, zone=zone, name=name)
    to_us = parse_us(last, zone=zone, name=name)
    if to_us <= from_us:
        raise errors.InvalidSetting(name, f"{errors.quoted(text)} ends before it begins")
    return from_us, to_us


def strict_us(text: str) -> int:
    """Microseconds since the epoch of RFC 3339 with its offset; raises ValueError."""
    parts = _WRITTEN.fullmatch(text)
    if parts is None or parts["offset"] is None:
        raise ValueError(text)
    return (dt.datetime.fromisoformat(text.upper()) - _EPOCH) // dt.timedelta(microseconds=1)


def utc_text(instant_us: int) -> str:
    """RFC 3339 in UTC with ``Z``; a fraction only where there is one."""
    return _clock_text(instant_us) + "Z"


class LocalTime:
    """Instants as the wall clocks of one zone show them."""

    def __init__(self, zone: str) -> None:
        self.zone = timezones.load(zone)

    def text(self, instant_us: int) -> str:
        """RFC 3339 with the offset of that moment."""
        # RFC 3339 has no seconds in offsets; a zone that once had them is shown to the minute.
        minutes = round(self.zone.offset_at(instant_us // expression.SECOND_US) / 60)
        hours, rest = divmod(abs(minutes), 60)
        clock = _clock_text(instant_us + minutes * 60 * expression.SECOND_US)
        return f"{clock}{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"


def _clock_text(clock_us: int) -> str:
    """Date and time of day, this way because a million of them should not take half a minute."""
    text = (_CLOCK_EPOCH + dt.timedelta(0, 0, clock_us)).isoformat()
    return text if clock_us % expression.SECOND_US == 0 else text.rstrip("0")


def _second_in(local: int, zone_name: str) -> int:
    """The first UTC second at which the wall clock shows ``local`` or has just jumped over it."""
    zone = timezones.load(zone_name)
    ends = (*zone.starts[1:], 1 << 62)
    periods = zip(zone.starts, zone.offsets, ends, strict=True)
    return next(
        max(local - offset, start) for start, offset, end in periods if local - offset < end
    )


def _placed_us(text: str, zone: str) -> int:
    """Microseconds since the epoch, of any year; raises ValueError."""
    if text.strip().lower() == "now":
        return now_us()
    parts = _WRITTEN.fullmatch(text.strip())
    if parts is None:
        raise ValueError(f"{errors.quoted(text)} is no time; {_EXAMPLE}")
    try:
        offset = expression.offset_seconds(parts["offset"]) if parts["offset"] else None
        date = _date(parts["date"].lower(), zone, offset)
        hour, _, rest = (parts["time"] or "00:00").partition(":")
        local = dt.datetime.fromisoformat(f"{date}T{hour.zfill(2)}:{rest}+00:00")
    except ValueError as error:
        raise _does_not_exist(text, str(error)) from None
    seconds = (local - _EPOCH) // dt.timedelta(seconds=1)
    fraction_us = int((parts["fraction"] or "0").ljust(6, "0")[:6])
    second = _second_in(seconds, zone) if offset is None else seconds - offset
    return second * expression.SECOND_US + fraction_us


def _date(written: str, zone: str, offset: int | None) -> str:
    """Return the date; that of a word on the clock of the offset or, without one, of the zone."""
    days = _DAYS.get(written)
    if days is None:
        return written
    second = now_us() // expression.SECOND_US
    ahead = timezones.load(zone).offset_at(second) if offset is None else offset
    return (_EPOCH + dt.timedelta(days=days, seconds=second + ahead)).date().isoformat()


def _does_not_exist(text: str, why: str) -> ValueError:
    return ValueError(f"{errors.quoted(text)} does not exist ({why}); {_EXAMPLE}")
