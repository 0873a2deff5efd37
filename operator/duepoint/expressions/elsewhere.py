"""Valid texts that mean something else in another scheduler: what to tell who wrote one.

Six fields are seconds first here, as for Quartz and Spring; EventBridge and Nomad have the year
last instead. Quartz and EventBridge count the days of the week from 1, which is Sunday. Where both
day fields are restricted either may match, as in crontab; in Spring and Jenkins both must. The page
docs/reference/semantics.md lists the forms of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_EVERY = ("*", "?")
_FIXED = re.compile(r"\d+", re.ASCII)
_STEP = re.compile(r"\*/\d", re.ASCII)
_NAME = re.compile(r"[A-Za-z]{2,}", re.ASCII)
#: Digits of weekdays, but not those behind # or /, which mean the same everywhere.
_NUMBERED = re.compile(r"(?<![#/\d])[1-7]", re.ASCII)


def notes(text: str) -> Iterator[str]:
    """Sentences about how another scheduler would read the text."""
    words = text.split()
    if text.lstrip().startswith("@"):
        return
    if len(words) == 5 and "H" in "".join(_NAME.sub("", word) for word in words).upper():
        yield from _of_both_days(words[2], words[4], "Jenkins")
    if len(words) not in (6, 7):
        return
    second, minute, hour, day, month, weekday, *year = words
    if not year:
        yield from _of_both_days(day, weekday, "Spring")
    is_hourly = hour in _EVERY and (
        _FIXED.fullmatch(minute) is not None or _STEP.match(second) is not None
    )
    is_odd = second not in ("0", "00") and not second.startswith("*")
    if not year and weekday in _EVERY and (is_hourly or is_odd or "?" in (hour, month)):
        five = " ".join(_five(words[:5]))
        yield (
            "the first of six fields is the second; EventBridge and Nomad begin with the minute "
            f'and end with the year: if this is theirs, write "{five}"'
        )
    elif "?" in (day, weekday) and _NUMBERED.search(weekday):
        yield (
            "1 is Monday here and in Spring, and Sunday in Quartz and EventBridge; names such as "
            "MON-FRI mean the same everywhere"
        )


def _of_both_days(day: str, weekday: str, other: str) -> Iterator[str]:
    if not {day, weekday} & {*_EVERY, "*/1"}:
        yield (
            f"either day field may match here, as in crontab; if this is for {other}, where both "
            'must, restrict one of them, such as "MON#1" for a Monday from 1 to 7'
        )


def _five(words: list[str]) -> list[str]:
    """The first five fields of EventBridge, whose weekdays have numbers one higher."""
    return [*words[:4], _NUMBERED.sub(lambda found: str(int(found[0]) - 1), words[4])]
