"""The grammar of cron: parses the text of a cron expression or macro to its fields.

Five fields are minute hour day-of-month month day-of-week. Six begin with seconds, and seven also
end with the year. White space separates fields, line ends included. Macros (``@daily``) are
replaced by their expression. ``@every`` and ``@at`` are not cron; compile.py handles them.

A field is a list of items separated by commas; each item is parsed alone and the results are
joined. Items are ``*``, ``?``, ``5``, ``1-5``, ``MON-FRI``, any of them with ``/step``, ``H`` in
its four forms, and for days ``L``, ``LW``, ``15W``, ``5L``, ``1#2``. As in CronJob, numbers may
have leading zeros, numbers outside our own forms a plus sign, and empty items are ignored. Every
error names the field, the column in the whole text and, if obvious, what to write instead.

The CRD has the same grammar as rules (tools/jobschema/expression_rules.py); tests compare the two
text by text.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from duepoint import errors
from duepoint.expressions import advice, fields

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
#: White space that may separate and surround fields: the ASCII part of what CronJob accepts.
WHITE = " \t\n\v\f\r"

_WORD = re.compile(f"[^{WHITE}]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CronFields:
    """A parsed cron expression; masks have bit v set for the value v.

    Attributes:
        seconds, minutes, hours: the times of day.
        day_rule: the days.
        sweeping: whether hour or minute is a wildcard, a step or a full range, so not a fixed time.
    """

    seconds: int
    minutes: int
    hours: int
    day_rule: fields.DayRule
    sweeping: bool


def parse(text: str, *, identity: str) -> CronFields:
    """Parse a cron expression or macro.

    Args:
        text: a cron expression or macro, with no blanks around it.
        identity: ``namespace/name``, hashed by H.

    Raises:
        InvalidExpression: with field, position and hint.
    """
    spelled_out = MACROS.get(text) if text.startswith("@") else text
    if spelled_out is None:
        raise errors.InvalidExpression(
            f"{errors.quoted(text)} is not a known macro",
            position=0,
            hint=advice.for_macro(text, MACROS),
        )
    words = [(word.group(), word.start()) for word in _WORD.finditer(spelled_out)]
    kinds = _KINDS.get(len(words))
    if kinds is None:
        raise errors.InvalidExpression(
            f"{errors.quoted(text)} has {len(words)} field{'s' * (len(words) != 1)}",
            position=words[7][1] if len(words) > 7 else len(text),
            hint=advice.for_field_count([word for word, _ in words], MACROS),
        )
    read = {
        kind: _field(kind, word, position, identity if "H" in word.upper() else "")
        for kind, (word, position) in zip(kinds, words, strict=True)
    }
    minutes, hours = read[fields.MINUTE], read[fields.HOUR]
    seconds = read.get(fields.SECOND, fields.Values(mask=1))
    years = read.get(fields.YEAR, fields.Values(starred=True))
    return CronFields(
        seconds=seconds.mask,
        minutes=minutes.mask,
        hours=hours.mask,
        day_rule=fields.DayRule(
            day=read[fields.DAY],
            months=read[fields.MONTH].mask,
            weekday=read[fields.WEEKDAY],
            years=None if years.starred else frozenset(fields.values_of(years.mask)),
        ),
        sweeping=minutes.sweeping or hours.sweeping,
    )


# -- one field -----------------------------------------------------------------------------------

_PLAIN = re.compile(
    r"(?:(?P<star>[*?])"
    r"|(?P<hash>H)(?:\((?P<hash_low>\d+|[A-Z]{3})-(?P<hash_high>\d+|[A-Z]{3})\))?"
    r"|(?P<low>\+?\d+|[A-Z]{3})(?:-(?P<high>\+?\d+|[A-Z]{3}))?)"
    r"(?:/(?P<step>\+?\d+))?",
    re.ASCII | re.IGNORECASE,
)
_WORKDAY = re.compile(r"(?P<low>\d+)W", re.ASCII | re.IGNORECASE)
_LAST_WEEKDAY = re.compile(r"(?P<low>\d+|[A-Z]{3})L", re.ASCII | re.IGNORECASE)
_NTH_WEEKDAY = re.compile(r"(?P<low>\d+|[A-Z]{3})#(?P<nth>\d+)", re.ASCII | re.IGNORECASE)


@functools.lru_cache(maxsize=4096)  # most fields of most expressions are common, such as ``*``
def _field(kind: fields.FieldKind, text: str, position: int, identity: str) -> fields.Values:
    """Parse one field, which begins at ``position`` of the whole expression.

    H items hash ``identity``; raises InvalidExpression.
    """
    items = []
    for item in text.split(","):
        if item:
            items.append(_Item(kind, item, position).values(identity))
        position += len(item) + 1
    if not items:
        raise errors.InvalidExpression(
            f"{kind.name}, column {position - len(text)}: the list has no item",
            field=kind.name,
            position=position - len(text) - 1,
            hint=f'write "*" for every {kind.name}, or a value such as "{kind.low}"',
        )
    values = functools.reduce(fields.Values.joined, items)
    if not values.sweeping and values.mask == kind.full:
        return values.joined(fields.Values(sweeping=True))
    return values


class _Item:
    """One item of a list, with its field and position for error messages."""

    def __init__(self, kind: fields.FieldKind, text: str, position: int) -> None:
        self._kind = kind
        self._text = text
        self._position = position

    def values(self, identity: str) -> fields.Values:
        parts = _PLAIN.fullmatch(self._text)
        if parts is None:
            return self._special()
        if parts["hash"]:
            return self._hashed(parts, identity)
        kind, step = self._kind, self._step(parts)
        low, high = kind.low, kind.high
        if parts["high"]:
            low, high = self._ends(parts, "low", "high")
        elif parts["low"]:
            low = self._wrapped(self._number(parts, "low"))
            high = kind.high if parts["step"] else low
        return fields.Values(
            mask=self._mask(low, high, step),
            starred=bool(parts["star"]) and step == 1,
            sweeping=low == kind.low and high >= kind.high,
        )

    def _ends(self, parts: re.Match[str], first: str, last: str) -> tuple[int, int]:
        """Return a range's ends; if names wrap, as in FRI-MON, the upper one is a cycle later."""
        low, high = self._number(parts, first), self._number(parts, last)
        if low <= high:
            return low, high
        words = parts[first].upper(), parts[last].upper()
        if _is_number(words[0]) and _is_number(words[1]):
            raise self._wrong(
                f'the range "{words[0]}-{words[1]}" runs downward',
                hint=f'write "{words[1]}-{words[0]}", or a list for what wraps round',
            )
        return low, high + self._kind.size

    def _mask(self, low: int, high: int, step: int) -> int:
        if step == 1 and high <= self._kind.high:
            return (1 << high + 1) - (1 << low)
        mask = 0
        for value in range(low, high + 1, step):
            mask |= 1 << self._wrapped(value)
        return mask

    def _wrapped(self, value: int) -> int:
        """Wrap a value beyond the end: weekday 7 is Sunday, and ranges of names may wrap once."""
        return value if value <= self._kind.high else value - self._kind.size

    def _hashed(self, parts: re.Match[str], identity: str) -> fields.Values:
        kind = self._kind
        if kind.hash_high is None:
            raise self._wrong("H means nothing here", hint='list the years, such as "2026-2030"')
        low, high, step = kind.low, kind.hash_high, self._step(parts)
        if parts["hash_low"]:
            low, high = self._ends(parts, "hash_low", "hash_high")
        if not parts["step"]:
            value = fields.hashed_value(identity, kind.name, low, high)
            return fields.Values(mask=1 << self._wrapped(value))
        start = fields.hashed_value(identity, kind.name, low, min(high, low + step - 1))
        whole = low == kind.low and high >= kind.hash_high
        return fields.Values(mask=self._mask(start, high, step), sweeping=whole)

    def _step(self, parts: re.Match[str]) -> int:
        if not parts["step"]:
            return 1
        kind, step = self._kind, int(parts["step"])
        if step == 0:
            raise self._wrong("a step cannot be 0", parts.start("step"))
        if step <= kind.size:
            return step
        hint = f"the largest step here is {kind.size}"
        if kind.unit:
            hint += f'; did you mean "@every {_cut(str(step))}{kind.unit}"?'
        what = f"a step of {_cut(str(step))} is larger than the field, which has {kind.size} values"
        raise self._wrong(what, parts.start("step"), hint=hint)

    def _number(self, parts: re.Match[str], group: str) -> int:
        kind, word = self._kind, parts[group]
        if not _is_number(word):
            if word.upper() in kind.names:
                return kind.low + kind.names.index(word.upper())
            if kind.names:
                hint = f"names are {kind.names[0]} to {kind.names[-1]}"
            else:
                hint = f"this field takes numbers {kind.low}-{kind.high}"
            raise self._wrong(f'"{word}" is not a name here', parts.start(group), hint=hint)
        number = int(word)
        high = 7 if kind is fields.WEEKDAY else kind.high
        if not kind.low <= number <= high:
            raise self._wrong(
                f'"{_cut(word)}" is outside {kind.low}-{high}',
                parts.start(group),
                hint=advice.for_number(kind, number),
            )
        return number

    def _special(self) -> fields.Values:
        """Parse the forms that only the two day fields have."""
        text = self._text.upper()
        if self._kind is fields.DAY:
            if text == "L":
                return fields.Values(last=True)
            if text == "LW":
                return fields.Values(last_workday=True)
            if parts := _WORKDAY.fullmatch(text):
                return fields.Values(nearest=1 << self._number(parts, "low"))
        if self._kind is fields.WEEKDAY:
            if parts := _LAST_WEEKDAY.fullmatch(text):
                return fields.Values(last_weekdays=1 << self._wrapped(self._number(parts, "low")))
            if parts := _NTH_WEEKDAY.fullmatch(text):
                weekday, nth = self._wrapped(self._number(parts, "low")), int(parts["nth"])
                if 1 <= nth <= 5:
                    return fields.Values(nth_weekdays=frozenset({(weekday, nth)}))
                raise self._wrong(
                    "a weekday comes at most five times a month",
                    parts.start("nth"),
                    hint='write "#1" to "#5", or "L" for the last one',
                )
        what = f"{errors.quoted(self._text)} is not understood"
        raise self._wrong(what, hint=advice.for_item(self._kind, self._text))

    def _wrong(self, what: str, offset: int = 0, *, hint: str = "") -> errors.InvalidExpression:
        position = self._position + offset
        return errors.InvalidExpression(
            f"{self._kind.name}, column {position + 1}: {what}",
            field=self._kind.name,
            position=position,
            hint=hint,
        )


def _is_number(word: str) -> bool:
    return word[-1].isdecimal()


def _cut(digits: str) -> str:
    return digits if len(digits) <= 20 else f"{digits[:20]}…"
