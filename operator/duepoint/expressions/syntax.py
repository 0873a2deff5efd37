"""The text of a cron expression or macro in, its fields out.

Five fields are minute hour day-of-month month day-of-week; six have seconds first; seven have the
year last. White space separates, line ends included. Macros (``@daily``) are rewritten as the
expression they stand for. ``@every`` and ``@at`` are not cron and are told apart in compile.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from duepoint import errors
from duepoint.expressions import advice, days, fields, items

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_FIVE = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)
_KINDS = {
    5: _FIVE,
    6: (fields.SECOND, *_FIVE),
    7: (fields.SECOND, *_FIVE, fields.YEAR),
}
#: What separates fields and may stand around them: what CronJob's parser takes of it in ASCII.
WHITE = " \t\n\v\f\r"

_WORD = re.compile(f"[^{WHITE}]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFields:
    """A parsed cron expression; masks have bit v set for the value v.

    Attributes:
        seconds, minutes, hours: the times of day.
        day_rule: the days.
        sweeping: hour or minute is a wildcard, a step or a full range; else its times are fixed.
    """

    seconds: int
    minutes: int
    hours: int
    day_rule: days.DayRule
    sweeping: bool


def parse(text: str, *, identity: str) -> CronFields:
    """The fields of the expression.

    Args:
        text: a cron expression or macro, with no blanks around it.
        identity: ``namespace/name``, hashed by H.

    Raises:
        InvalidExpression: reason InvalidSchedule, with field, position and hint.
    """
    words = [(word.group(), word.start()) for word in _WORD.finditer(_spelled_out(text))]
    kinds = _KINDS.get(len(words))
    if kinds is None:
        raise errors.InvalidExpression(
            f"{errors.quoted(text)} has {len(words)} field{'s' * (len(words) != 1)}",
            position=words[7][1] if len(words) > 7 else len(text),
            hint=advice.for_field_count([word for word, _ in words], MACROS),
        )
    read = {
        kind.name: items.parse(kind, word, position=position, identity=identity)
        for kind, (word, position) in zip(kinds, words, strict=True)
    }
    return _combined(read)


def _spelled_out(text: str) -> str:
    if not text.startswith("@"):
        return text
    spelled_out = MACROS.get(text)
    if spelled_out is None:
        raise errors.InvalidExpression(
            f"{errors.quoted(text)} is not a known macro",
            position=0,
            hint=advice.for_macro(text, MACROS),
        )
    return spelled_out


def _combined(read: dict[str, fields.Values]) -> CronFields:
    minutes, hours = read[fields.MINUTE.name], read[fields.HOUR.name]
    seconds, years = read.get(fields.SECOND.name), read.get(fields.YEAR.name)
    return CronFields(
        seconds=1 if seconds is None else seconds.mask,
        minutes=minutes.mask,
        hours=hours.mask,
        day_rule=_day_rule(read, years),
        sweeping=minutes.sweeping or hours.sweeping,
    )


def _day_rule(read: dict[str, fields.Values], years: fields.Values | None) -> days.DayRule:
    day, weekday = read[fields.DAY.name], read[fields.WEEKDAY.name]
    return days.DayRule(
        days=day.mask,
        last_day=day.last,
        last_workday=day.last_workday,
        nearest=day.nearest,
        any_day=day.starred,
        months=read[fields.MONTH.name].mask,
        weekdays=weekday.mask,
        any_weekday=weekday.starred,
        last_weekdays=weekday.last_weekdays,
        nth_weekdays=weekday.nth_weekdays,
        years=None if years is None or years.starred else _years(years.mask),
    )


def _years(mask: int) -> frozenset[int]:
    return frozenset(
        year for year in range(fields.YEAR.low, fields.YEAR.high + 1) if mask >> year & 1
    )
