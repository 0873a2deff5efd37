"""What a CronJob makes of the same expression, where it is not the same.

CronJob is built on robfig/cron v3. Which texts it takes is judged by a small grammar here; the
times are the same by design but where the clock of a zone changes. Source: ``parser.go`` of
robfig/cron v3.0.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from duepoint.cli import clockchanges, instants
from duepoint.expressions import cron, fields, syntax, timezones

_ITEM = re.compile(
    r"(?P<low>[*?]|\+?\d+|[A-Za-z]{3})(?:-(?P<high>\+?\d+|[A-Za-z]{3}))?(?:/\+?\d+)?", re.ASCII
)
_FIVE = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A change of the clock around which a CronJob has other times than a Schedule.

    Attributes:
        day: of the change by the zone's calendar, such as ``2027-03-28``.
    """

    change: clockchanges.ClockChange
    day: str

    @property
    def text(self) -> str:
        """Such as ``does not run at 02:30 on 2027-03-28``; the subject is the CronJob."""
        if self.change.is_gap:
            return f"does not run at {self.change.listed} on {self.day}"
        return f"runs twice at {self.change.listed} on {self.day}"

    @property
    def ours(self) -> str:
        """What a Schedule does unless its ``dst`` says otherwise, and which has CronJob's way."""
        if self.change.is_gap:
            return "a Schedule once, after the gap; the CronJob's way is dst: {gap: Skip}"
        return "a Schedule once; the CronJob's way is dst: {overlap: Both}"


def refusal(text: str) -> str:
    """Why CronJob does not take the text; empty where it does."""
    words = text.split()
    head = words[0].lower() if words else ""
    if head in ("@at", "@never"):
        return f"there is no {head}"
    if head.startswith("@"):
        return ""
    if len(words) != 5:
        return f"{len(words)} fields instead of 5"
    for kind, word in zip(_FIVE, words, strict=True):
        for item in filter(None, word.split(",")):
            if why := _item_refusal(kind, item):
                return f"{kind.name} {item}: {why}"
    return ""


def around_changes(
    text: str,
    ours: cron.Cron,
    time_zone: str,
    from_us: int,
    *,
    gap: cron.Gap = cron.Gap.RUN_ONCE,
    overlap: cron.Overlap = cron.Overlap.FIRST,
) -> list[Difference]:
    """The next difference at each kind of clock change; the text must not be refused.

    A CronJob leaves out what does not exist and runs what comes twice each time. Where a whole day
    or a midnight is skipped it can lose more than these times.
    """
    if syntax.parse(text.strip(), identity="").sweeping:
        return []
    changes = clockchanges.coming(ours, timezones.load(time_zone), from_us)
    same = {True: gap is cron.Gap.SKIP, False: overlap is cron.Overlap.BOTH}
    return [
        Difference(change=change, day=instants.LocalTime(time_zone).text(change.at_us)[:10])
        for change in changes
        if not same[change.is_gap]
    ]


def _item_refusal(kind: fields.FieldKind, item: str) -> str:
    parts = _ITEM.fullmatch(item)
    if parts is None or parts["low"].upper() == "H":
        return "it knows no L, W, # or H"
    ends = [_value(kind, parts[name]) for name in ("low", "high") if parts[name]]
    if 7 in ends and kind is fields.WEEKDAY:
        return "it writes Sunday as 0"
    if len(ends) == 2 and ends[0] > ends[1]:
        return "its ranges do not wrap"
    return ""


def _value(kind: fields.FieldKind, word: str) -> int:
    if word[-1].isdecimal():
        return int(word)
    names = kind.names
    return kind.low + names.index(word.upper()) if word.upper() in names else kind.low
