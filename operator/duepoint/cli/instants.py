"""Reads instants from the command line, and formats instants for output.

Input is RFC 3339 with ``Z`` or an offset; without one it is local time in the given zone. Instead
of a date it may have ``yesterday``, ``today`` or ``tomorrow`` in that zone. A date alone means its
midnight. ``now`` is valid, and for a slot also a time of day. A local time that daylight saving
skips means the first instant after the gap; one that comes twice means the first of the two. Output
is RFC 3339 in UTC and in the zone, always for the same instant. Zones are those of the engine.
"""

from __future__ import annotations

import datetime as dt
import re
import time

from duepoint import errors
from duepoint.expressions import expression, timezones

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WRITTEN = re.compile(
    rf"(?P<date>\d{{4,}}-\d\d-\d\d|{'|'.join(_DAYS)})"
    r"(?:[T ](?P<time>\d?\d:\d\d(?::\d\d)?)(?:\.(?P<fraction>\d{1,9}))?"
    r"(?P<offset>Z|[+-]\d\d:\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_EXAMPLE = "write RFC 3339, such as 2026-03-29T00:00:00Z or 2026-03-29T02:00:00+01:00"


utc_text = expression.utc_text


def now_us() -> int:
    """Return this machine's UTC, the only clock of the commands without a cluster."""
    return time.time_ns() // 1_000


def parse_us(text: str, *, zone: str, name: str) -> int:
    """Return microseconds since the epoch; raises errors.InvalidSetting for the option ``name``."""
    try:
        instant_us = _placed_us(text, zone)
        if not expression.FIRST_US <= instant_us <= expression.LAST_US:
            raise _does_not_exist(text, "the years are 1970 to 2112")
    except ValueError as error:
        raise errors.InvalidSetting(name, str(error)) from None
    return instant_us


def parse_last_us(text: str, *, zone: str, name: str) -> int:
    """Do the same as ``parse_us``; a time of day such as ``02:30`` is its last occurrence."""
    if not _TIME_OF_DAY.fullmatch(text.strip()):
        try:
            return parse_us(text, zone=zone, name=name)
        except errors.InvalidSetting as error:
            if _WRITTEN.fullmatch(text.strip()):
                raise  # it has the form of a time, but does not exist
            more = f"{error.reason}, or HH:MM for the last one, or yesterday HH:MM"
            raise errors.InvalidSetting(name, more) from None
    today_us = parse_us(f"today {text.strip()}", zone=zone, name=name)
    if today_us <= now_us():
        return today_us
    return parse_us(f"yesterday {text.strip()}", zone=zone, name=name)


def strict_us(text: str) -> int:
    """Return RFC 3339 with an offset as microseconds since the epoch; raises ValueError."""
    parts = _WRITTEN.fullmatch(text)
    if parts is None or parts["offset"] is None:
        raise ValueError(text)
    return (dt.datetime.fromisoformat(text.upper()) - _EPOCH) // dt.timedelta(microseconds=1)


class LocalTime:
    """Formats instants in the local time of one zone."""

    def __init__(self, zone: str) -> None:
        self.zone = timezones.load(zone)

    def text(self, instant_us: int) -> str:
        """Return RFC 3339 with the offset at that moment."""
        # RFC 3339 has no seconds in offsets; a zone that once had them is shown to the minute.
        minutes = round(self.zone.offset_at(instant_us // expression.SECOND_US) / 60)
        hours, rest = divmod(abs(minutes), 60)
        clock = utc_text(instant_us + minutes * 60 * expression.SECOND_US).removesuffix("Z")
        return f"{clock}{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"


def _second_in(local: int, zone_name: str) -> int:
    """Return the first UTC second when the local time is ``local`` or has just skipped it."""
    zone = timezones.load(zone_name)
    ends = (*zone.starts[1:], 1 << 62)
    periods = zip(zone.starts, zone.offsets, ends, strict=True)
    return next(
        max(local - offset, start) for start, offset, end in periods if local - offset < end
    )


def _placed_us(text: str, zone: str) -> int:
    """Return microseconds since the epoch, for any year; raises ValueError."""
    if text.strip().lower() == "now":
        return now_us()
    parts = _WRITTEN.fullmatch(text.strip())
    if parts is None:
        raise ValueError(f"{errors.quoted(text)} is not a time; {_EXAMPLE}")
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
    """Return the date; for a word, the date at the offset or, without one, in the zone."""
    days = _DAYS.get(written)
    if days is None:
        return written
    second = now_us() // expression.SECOND_US
    ahead = timezones.load(zone).offset_at(second) if offset is None else offset
    return (_EPOCH + dt.timedelta(days=days, seconds=second + ahead)).date().isoformat()


def _does_not_exist(text: str, why: str) -> ValueError:
    return ValueError(f"{errors.quoted(text)} does not exist ({why}); {_EXAMPLE}")
