"""What to write instead: hints for items of a cron field that could not be read.

Each rule is a pattern over the whole item, in capitals, and what it most probably was meant to be.
The first that fits speaks; the last one always fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from duepoint.expressions import fields

_Advice = Callable[[fields.Kind, str], str]

_SPECIAL = (
    "L, LW and 15W stand alone in day-of-month, 5L and 1#2 in day-of-week; "
    "they take no ranges and no steps"
)


def for_item(kind: fields.Kind, item: str) -> str:
    """A hint for an item that is no item at all."""
    text = item.upper()
    for shape, advise in _RULES:
        if shape.fullmatch(text) and (hint := advise(kind, text)):
            return hint
    return f'write for example "*", "{kind.low}", "{kind.low}-{kind.low + 2}" or "*/2"'


def for_number(kind: fields.Kind, number: int) -> str:
    """A hint for a number outside the field; empty when the range says it all."""
    if kind in (fields.SECOND, fields.MINUTE, fields.HOUR) and number == kind.high + 1:
        return f"count from 0 to {kind.high}"
    return ""


def _in_weekdays(hint: str) -> _Advice:
    return lambda kind, _: hint if kind is fields.WEEKDAY else ""


def _shortened(kind: fields.Kind, text: str) -> str:
    return f'write "{text[:3]}"' if text[:3] in kind.names else ""


_RULES: tuple[tuple[re.Pattern[str], _Advice], ...] = (
    (re.compile(r"-.*|.*(?:--|/-).*"), lambda *_: "there are no negative values"),
    (re.compile(r"R(?:[/(].*)?"), lambda *_: "write H, which is the same on every replica"),
    (re.compile(r"L"), _in_weekdays('write "SAT", or "5L" for the last Friday of the month')),
    (re.compile(r"L[0-7]"), _in_weekdays('write the day first, such as "5L" for the last Friday')),
    (re.compile(r"[A-Z]{4,}"), _shortened),
    (re.compile(r"[0-9LW#,/*-]*[LW#][0-9LW#,/*-]*"), lambda *_: _SPECIAL),
)
