"""What a CronJob makes of the same expression, where it is not the same.

CronJob is built on robfig/cron v3. Which texts it takes is judged by a small grammar here; in UTC
the times are the same by design, so differences are looked for where the clock of a zone changes,
and read off both sides' times on that day. Source: ``parser.go`` of robfig/cron v3.0.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from duepoint.cli import instants
from duepoint.cli.cronjob.cronjobtimes import CronJobTimes
from duepoint.expressions import cron, expression, fields, syntax, timezones

_ITEM = re.compile(
    r"(?P<low>[*?]|\+?\d+|[A-Za-z]{3})(?:-(?P<high>\+?\d+|[A-Za-z]{3}))?(?:/\+?\d+)?", re.ASCII
)
_FIVE = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)

_SECOND_US = expression.SECOND_US
_DAY = 86_400
#: How far ahead differences are looked for; an expression with a busy day is the same every year.
_YEARS, _YEARS_OF_BUSY = 12, 2
_BUSY = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A day on which a CronJob has other times than a Schedule.

    Attributes:
        day: by the zone's calendar, such as ``2027-03-28``.
        is_gap: the clock jumps forward on that day; else it goes back.
        left_out: times of the Schedule that the CronJob does not have.
        added: times of the CronJob that the Schedule does not have.
        runs: how often the CronJob runs on that day.
    """

    day: str
    is_gap: bool
    left_out: tuple[int, ...]
    added: tuple[int, ...]
    runs: int

    def text(self, local: instants.LocalTime) -> str:
        """Such as ``does not run on 2027-03-28``; the subject is the CronJob."""
        if not self.runs:
            return f"does not run on {self.day}"
        parts = []
        if self.left_out:
            parts.append(f"does not run at {_listed(self.left_out, local)}")
        if self.added:
            parts.append(f"runs also at {_listed(self.added, local)}")
        return f"{' and '.join(parts)} on {self.day}"


def refusal(text: str) -> str:
    """Why CronJob does not take the text; empty where it does."""
    words = text.split()
    head = words[0].lower() if words else ""
    if head == "@at":
        return "there is no @at"
    if head.startswith("@"):
        return ""
    if len(words) != 5:
        return f"{len(words)} fields instead of 5"
    for kind, word in zip(_FIVE, words, strict=True):
        for item in filter(None, word.split(",")):
            if why := _item_refusal(kind, item):
                return f"{kind.name} {item}: {why}"
    return ""


def differences(text: str, ours: cron.Cron, time_zone: str, from_us: int) -> list[Difference]:
    """The next difference on a day of each kind of clock change; the text must not be refused."""
    zone = timezones.load(time_zone)
    theirs = CronJobTimes(syntax.parse(text.strip(), identity=""), zone)
    found: dict[bool, Difference] = {}
    is_busy = ours.count_between(from_us, from_us + 7 * _DAY * _SECOND_US) > 7 * _BUSY
    years = _YEARS_OF_BUSY if is_busy else _YEARS
    last = from_us // _SECOND_US + years * 366 * _DAY
    for start, before, after in zone.changes_after(from_us // _SECOND_US):
        if start <= last and (after > before) not in found:
            difference = _on_day_of(start, before, after, ours, theirs)
            if difference:
                found[difference.is_gap] = difference
    return sorted(found.values(), key=lambda difference: difference.day)


def _on_day_of(
    start: int, before: int, after: int, ours: cron.Cron, theirs: CronJobTimes
) -> Difference | None:
    """Of the day on which the clock shows its new time, from midnight to midnight."""
    midnight = start + after - (start + after) % _DAY
    begin, end = midnight - before, midnight + _DAY - after
    begin = min(begin, start)
    slots_us = expression.walk(ours, begin * _SECOND_US - 1, end * _SECOND_US - 1)
    our_times, their_times = {slot_us // _SECOND_US for slot_us in slots_us}, set[int]()
    second = theirs.next_after(begin - _DAY // 4)  # its way depends on where it comes from
    while second is not None and second < end:
        if second >= begin:
            their_times.add(second)
        second = theirs.next_after(second)
    if our_times == their_times:
        return None
    return Difference(
        day=instants.utc_text(midnight * _SECOND_US)[:10],
        is_gap=after > before,
        left_out=tuple(sorted(our_times - their_times)),
        added=tuple(sorted(their_times - our_times)),
        runs=len(their_times),
    )


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


def _listed(seconds: tuple[int, ...], local: instants.LocalTime) -> str:
    times = [local.text(second * _SECOND_US)[11:] for second in seconds[:4]]
    more = len(seconds) - len(times)
    return ", ".join(times) + (f" and {more} more times" if more else "")
