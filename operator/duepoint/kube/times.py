"""Conversion between the API server's RFC 3339 texts and microseconds.

``metav1.Time`` has whole seconds; annotations and Job times use it. ``metav1.MicroTime`` always has
six digits; Leases and Events use it. Pure.
"""

from __future__ import annotations

import datetime as dt
import functools

from duepoint import errors
from duepoint.expressions import timezones

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FIRST_DAY = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH).days
_LAST_DAY = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH).days
_MICROSECOND = dt.timedelta(microseconds=1)


def parse_us(text: str) -> int:
    """Parse an RFC 3339 text to microseconds since the epoch.

    Raises ValueError for any other text, or for an instant outside the years 1 to 9999 in UTC: a
    zone offset can move it there, and no function here could write it.
    """
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    since = moment - _EPOCH  # a division by timedelta takes as long as the parsing
    if not _FIRST_DAY <= since.days <= _LAST_DAY:
        raise ValueError(f"{text!r} is not in the years 1 to 9999")
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


# Thousands of Jobs of one slot have the same texts.
@functools.lru_cache(maxsize=1_000)
def time_text(instant_us: int) -> str:
    """Return the instant as ``metav1.Time`` in UTC, cut to whole seconds."""
    return f"{_moment(instant_us).replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def micro_time_text(instant_us: int) -> str:
    """Return the instant as ``metav1.MicroTime`` in UTC."""
    return f"{_moment(instant_us).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


@functools.lru_cache(maxsize=1_000)
def time_text_in(instant_us: int, zone: str) -> str:
    """Return the instant as ``metav1.Time`` in an IANA zone; UTC is ``Z``, as in CronJobs.

    A zone that is not in our data gives UTC: the text is a convenience for tools, and the instant
    is right either way.
    """
    try:
        offset = timezones.load(zone).offset_at(instant_us // 1_000_000)
    except errors.InvalidExpression:
        offset = 0
    if not offset:
        return time_text(instant_us)
    local = _moment(instant_us).astimezone(dt.timezone(dt.timedelta(seconds=offset)))
    return local.isoformat(timespec="seconds")


def _moment(instant_us: int) -> dt.datetime:
    return _EPOCH + instant_us * _MICROSECOND
