"""Durations as people write them: ``90s``, ``1h30m``, ``1.5d``, ``250ms``.

The grammar is that of Go's time.ParseDuration, without signs and units below the millisecond, and
with ``d`` for 24 hours. Values are whole microseconds. A duration that is not exactly a whole
number of them is refused rather than rounded, because a rounded period drifts.
"""

from __future__ import annotations

import re

from duepoint import errors

UNITS_US = {
    "d": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
}

#: Most digits on either side of the decimal point.
_DIGITS = 18

#: Longest text that gets a "did you mean" hint.
_SUGGESTED_LENGTH = 40

#: Spellings of the units, in lower case.
_SPELLINGS = (
    ("ms", "ms|msecs?|millis?|milliseconds?"),
    ("s", "s|secs?|seconds?"),
    ("m", "m|mins?|minutes?"),
    ("h", "h|hrs?|hours?"),
    ("d", "d|days?"),
)

_PART = re.compile(
    r"(?P<whole>\d+)(?:\.(?P<part>\d+))?(?:[eE](?P<power>\d+))?(?P<unit>[A-Za-zµ]*)", re.ASCII
)


class InvalidDuration(ValueError):
    """A text is not a valid duration; ``huge``: it is one, but longer than any calendar."""

    def __init__(self, message: str, *, huge: bool = False) -> None:
        super().__init__(message)
        self.huge = huge


def parse_duration_us(text: str) -> int:
    """Return the duration in microseconds; raises InvalidDuration, which says what to write."""
    if not text:
        raise InvalidDuration('a duration is missing; write one such as "90s" or "1h30m"')
    try:
        return _parsed_us(text)
    except InvalidDuration as error:
        message = f"{errors.quoted(text)} {error}"
        likely = " or ".join(f'"{each}"' for each in meant(text))
        if likely and not error.huge:
            message += f"; did you mean {likely}?"
        raise InvalidDuration(message) from error


def _parsed_us(text: str) -> int:
    """Return the duration; raises InvalidDuration with what is wrong with the text."""
    if text == "0":
        return 0
    if text[0] in "+-":
        raise InvalidDuration('has a sign; write it without, such as "90s"')
    total, at = 0, 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise InvalidDuration(
                f"is not a duration at column {at + 1}; "
                'write numbers with units, such as "90s" or "1h30m"'
            )
        total += _part_us(part)
        at = part.end()
    return total


def _part_us(part: re.Match[str]) -> int:
    unit, known = part["unit"], "units are ms, s, m, h and d"
    unit_us = UNITS_US.get(unit)
    if not unit:
        raise InvalidDuration(f'has a number without a unit; {known}, such as "90s"')
    if unit in {"ns", "us", "µs"}:
        raise InvalidDuration(f'uses "{unit}", which is too fine; {known}')
    if unit_us is None:
        raise InvalidDuration(f"uses the unknown unit {errors.quoted(unit)}; {known}")
    whole, fraction = part["whole"], part["part"] or ""
    if len(whole) > _DIGITS or len(fraction) > _DIGITS or len(part["power"] or "") > 1:
        raise InvalidDuration("is longer than any calendar", huge=True)
    if part["power"]:
        huge = int(whole) * 10 ** int(part["power"]) * unit_us > 1 << 52
        raise InvalidDuration("has an exponent; write the number out", huge=huge)
    scaled = int(whole + fraction) * unit_us
    value, rest = divmod(scaled, int("1" + "0" * len(fraction)))
    if rest:
        raise InvalidDuration("is finer than a microsecond")
    return value


def meant(text: str) -> list[str]:
    """Return the durations that the author of this text may have meant, best first."""
    if len(text) > _SUGGESTED_LENGTH:
        return []
    plain = re.sub(r"[\s+-]|^P|T(?=\d)|and", "", text)
    if plain.isdecimal() and plain.isascii() and int(plain):
        return [f"{plain}s", f"{plain}m"]
    spelled = re.sub(r"[A-Za-z]+", _usual_unit, plain)
    if weeks := re.fullmatch(r"(\d{1,6})(?:w|weeks?)", plain, re.ASCII | re.IGNORECASE):
        spelled = f"{int(weeks[1]) * 7}d"
    try:
        return [spelled] if spelled and _parsed_us(spelled) else []
    except InvalidDuration:
        return []


def _usual_unit(word: re.Match[str]) -> str:
    letters = word[0].lower()
    usual = (unit for unit, spelling in _SPELLINGS if re.fullmatch(spelling, letters))
    return next(usual, letters)


def format_duration(us: int) -> str:
    """Return the shortest text that parse_duration_us reads as the same duration."""
    if us < 0:
        raise ValueError(f"a duration is never negative: {us} us")
    parts = []
    for unit, size_us in UNITS_US.items():
        count, us = divmod(us, size_us)
        if count or (unit == "ms" and us):
            fraction = f".{us:03}".rstrip("0") if unit == "ms" and us else ""
            parts.append(f"{count}{fraction}{unit}")
    return "".join(parts) or "0s"
