"""The forms without fields: ``@every 1h30m``, ``@at 2026-12-24T18:00:00Z`` and ``@never``.

``@every``: slot k is anchor + k * period, for k = 0, 1, 2, ... Each slot is computed from the
anchor, so a late run never moves a later slot: the schedule cannot drift and ignores daylight
saving. The anchor itself is slot 0. A Schedule anchored at its creation never runs slot 0, because
its watermark starts there; one with a ``startTime`` does. A Job's name contains its slot in whole
seconds, so the rule is stricter with a jobTemplate.

``@at`` has one slot: unix seconds, or RFC 3339 with its zone (``Z`` or ``+01:00``). A local time is
not allowed, because a one-shot that moves with a time zone setting would surprise. A slot in the
past is valid: whether it still runs depends on deadlines, not on the text.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from duepoint import errors
from duepoint.expressions import durations, expression, timezones

NEVER = "@never"

SHORTEST_US = 100_000
SHORTEST_WITH_JOB_US = expression.SECOND_US
#: The period of ``@at``: so long that only the first slot is in range.
_ONCE_US = expression.LAST_US + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """Evenly spaced slots from the anchor on, or only the anchor; numbers in microseconds."""

    anchor_us: int
    period_us: int

    def next_after(self, instant_us: int) -> int | None:
        steps = max(0, (instant_us - self.anchor_us) // self.period_us + 1)
        slot_us = self.anchor_us + steps * self.period_us
        return slot_us if slot_us <= expression.LAST_US else None

    def previous_before(self, instant_us: int) -> int | None:
        steps = (min(instant_us - 1, expression.LAST_US) - self.anchor_us) // self.period_us
        return self.anchor_us + steps * self.period_us if steps >= 0 else None

    def count_between(self, after_us: int, through_us: int) -> int:
        return max(0, self._slots_through(through_us) - self._slots_through(after_us))

    def _slots_through(self, instant_us: int) -> int:
        last_us = min(instant_us, expression.LAST_US)
        return max(0, (last_us - self.anchor_us) // self.period_us + 1)

    def describe(self) -> str:
        if self.period_us == _ONCE_US:
            return f"once, at {expression.utc_text(self.anchor_us)}"
        return f"every {durations.format_duration(self.period_us)}"


def every(value: str, *, anchor_us: int, whole_seconds: bool) -> Every:
    """Compile a period; raises ValueError, also if only the anchor is in range."""
    period_us = durations.parse_duration_us(value)
    shown = durations.format_duration(period_us)
    if whole_seconds and (period_us < SHORTEST_WITH_JOB_US or period_us % expression.SECOND_US):
        raise ValueError(
            f'{shown} is not a whole number of seconds, as a jobTemplate needs; write at least "1s"'
        )
    if period_us < SHORTEST_US:
        raise ValueError(f"{shown} is too short; the shortest is 100ms")
    if period_us % 1_000:
        raise ValueError("the period must be a whole number of milliseconds")
    if whole_seconds:
        anchor_us -= anchor_us % expression.SECOND_US
    if anchor_us + period_us > expression.LAST_US:
        raise ValueError(f"{errors.quoted(value)} reaches beyond the year 2112")
    return Every(anchor_us=anchor_us, period_us=period_us)


# -- one instant --------------------------------------------------------------------------------

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
#: The same with missing parts, which a hint adds.
_NEARLY = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ]+(\d\d:\d\d)(:\d\d(?:\.\d{1,6})?)?)?"
    r"\s*(Z|UTC|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?",
    re.ASCII | re.IGNORECASE,
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EXAMPLE = 'write it as "@at 2026-12-24T18:00:00Z" or in unix seconds'


def at(value: str, *, whole_seconds: bool, time_zone: str) -> Every:
    """Compile an instant; raises ValueError, also outside 1970 to 2112.

    If the value has no zone, the error proposes one with the offset of ``time_zone``.
    """
    if not value:
        raise ValueError(f"an instant is missing; {_EXAMPLE}")
    if value.isdecimal() and value.isascii():
        slot_us = int(value) * expression.SECOND_US
    else:
        slot_us = _rfc3339_us(value, time_zone)
    if not expression.FIRST_US <= slot_us <= expression.LAST_US:
        outside = f"{errors.quoted(value)} is outside the years 1970 to 2112"
        if re.fullmatch(r"1\d{12}", value, re.ASCII):
            outside += f'; unix time counts seconds: did you mean "@at {value[:-3]}"?'
        raise ValueError(outside)
    if whole_seconds and slot_us % expression.SECOND_US:
        raise ValueError("a jobTemplate needs a whole second; leave the fraction out")
    return Every(anchor_us=slot_us, period_us=_ONCE_US)


def _rfc3339_us(value: str, time_zone: str) -> int:
    if re.match(r"[+-]?\d{5,}-", value, re.ASCII):
        raise ValueError(f"{errors.quoted(value)} is outside the years 1970 to 2112")
    if _RFC3339.fullmatch(value) is None:
        hint = _suggestion(value, time_zone) or _EXAMPLE
        raise ValueError(f"{errors.quoted(value)} is not an instant with its zone; {hint}")
    try:
        instant = dt.datetime.fromisoformat(value.upper())
    except ValueError as error:
        raise ValueError(f"{errors.quoted(value)} does not exist ({error})") from error
    return (instant - _EPOCH) // dt.timedelta(microseconds=1)


def _suggestion(value: str, time_zone: str) -> str:
    """Return a "did you mean" hint if only a letter or the zone is missing."""
    parts = _NEARLY.fullmatch(value)
    if parts is None:
        return ""
    date, clock, seconds, zone = parts.groups()
    local = f"{date}T{clock or '00:00'}{seconds or ':00'}"
    if zone is None:
        zone = _offset(local, time_zone)
    elif zone.upper() in {"Z", "UTC"}:
        zone = "Z"
    elif ":" not in zone:
        zone = f"{zone[:3]}:{zone[3:]}"
    return f'did you mean "@at {local}{zone}"?'


def _offset(local: str, time_zone: str) -> str:
    """Return the zone's offset at a local time; if there are two, the one before the change."""
    try:
        zone = timezones.load(time_zone)
        second = (dt.datetime.fromisoformat(f"{local}+00:00") - _EPOCH) // dt.timedelta(seconds=1)
    except (errors.InvalidExpression, ValueError):
        return "Z"
    offset = zone.offset_at(second)
    offset = zone.offset_at(second - offset)
    if not offset:
        return "Z"
    hours, rest = divmod(abs(offset), 3_600)
    return f"{'-' if offset < 0 else '+'}{hours:02}:{rest // 60:02}"
