"""Valid texts that mean something else in another scheduler: what to tell who wrote one.

Six fields are seconds first here, as for Quartz and Spring; EventBridge and Nomad have the year
last instead. Quartz and EventBridge count the days of the week from 1, which is Sunday. The page
docs/reference/semantics.md lists the forms of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_EVERY = ("*", "?")
_FIXED = re.compile(r"\d+", re.ASCII)
#: Digits of weekdays, but not those behind # or /, which mean the same everywhere.
_NUMBERED = re.compile(r"(?<![#/\d])[1-7]", re.ASCII)


def notes(text: str) -> Iterator[str]:
    """Sentences about how another scheduler would read the text."""
    words = text.split()
    if text.lstrip().startswith("@") or len(words) not in (6, 7):
        return
    second, minute, hour, day, month, weekday, *year = words
    is_hourly = hour in _EVERY and _FIXED.fullmatch(minute) is not None
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


def _five(words: list[str]) -> list[str]:
    """The first five fields of EventBridge, whose weekdays have numbers one higher."""
    return [*words[:4], _NUMBERED.sub(lambda found: str(int(found[0]) - 1), words[4])]
