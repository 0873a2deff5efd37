"""Finds the differences between a CronJob and a Schedule with the same expression.

CronJob is built on robfig/cron v3. A small grammar here decides which texts it accepts. In UTC the
times are the same by design, so differences are searched only at clock changes of a zone. They are
found by comparing the times of both, from the day of the change to the CronJob's first run after
it: when robfig's search meets a midnight that does not exist, it can skip a month. Source:
``parser.go`` of robfig/cron v3.0.1.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from dataclasses import dataclass
from typing import Any

from duepoint import expressions
from duepoint.cli import instants
from duepoint.expressions import cron, expression, fields, syntax, timezones

_ITEM = re.compile(
    r"(?P<low>[*?]|\+?\d+|[A-Za-z]{3})(?:-(?P<high>\+?\d+|[A-Za-z]{3}))?(?:/\+?\d+)?", re.ASCII
)
#: The fields of a CronJob's expression.
FIELDS = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)

_SECOND_US = expression.SECOND_US
_DAY = 86_400
#: How far to search if the CronJob never runs again: as far as CronJob itself.
_REACH = 5 * 366 * _DAY
#: How many years ahead to search; an expression with many times a day is the same every year.
_YEARS, _YEARS_OF_BUSY = 12, 2
_BUSY = 48
#: The ways to treat clock changes in a Schedule, those most like the default first.
_CHOICES = [
    (gap, overlap)
    for gap in (cron.Gap.RUN_ONCE, cron.Gap.SKIP)
    for overlap in (cron.Overlap.FIRST, cron.Overlap.BOTH, cron.Overlap.SECOND)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A clock change around which a CronJob has other times than a Schedule.

    Attributes:
        day: the local date of the change, such as ``2027-03-28``.
        left_out: times of the Schedule that the CronJob does not have.
        added: times of the CronJob that the Schedule does not have.
        runs: how often the CronJob runs on that day.
        remedy: the ``dst`` that gives a Schedule the CronJob's times; empty if there is none.
    """

    day: str
    left_out: tuple[int, ...]
    added: tuple[int, ...]
    runs: int
    remedy: str

    def text(self, local: instants.LocalTime) -> str:
        """Return a text about the CronJob, such as ``does not run on 2027-03-28``."""
        days = {local.text(second * _SECOND_US)[:10] for second in self.left_out + self.added}
        if days == {self.day} and not self.runs:
            return f"does not run on {self.day}"
        parts = []
        for seconds, verb in ((self.left_out, "does not run"), (self.added, "runs also")):
            if seconds and days == {self.day}:
                parts.append(f"{verb} at {_listed(seconds, local, 11)} on {self.day}")
            elif seconds:
                parts.append(f"{verb} at {_listed(seconds, local, 0)}")
        return " and ".join(parts)


def refusal(text: str) -> str:
    """Return why CronJob refuses the text; empty if it accepts it."""
    words = text.split()
    head = words[0].lower() if words else ""
    if head in ("@at", "@never"):
        return f"there is no {head}"
    if head.startswith("@"):
        return ""
    if len(words) != len(FIELDS):
        return f"{len(words)} fields instead of 5"
    for kind, word in zip(FIELDS, words, strict=True):
        for item in filter(None, word.split(",")):
            if why := _item_refusal(kind, item):
                return f"{kind.name} {item}: {why}"
    return ""


@functools.lru_cache(maxsize=4096)
def sentences(
    text: str,
    time_zone: str,
    from_us: int,
    gap: cron.Gap = cron.Gap.RUN_ONCE,
    overlap: cron.Overlap = cron.Overlap.FIRST,
) -> tuple[str, ...]:
    """Return what a CronJob with this expression does otherwise, as ``runs also at ...``.

    Cached, as a search is slow and many CronJobs share their times.
    """
    if why := refusal(text):
        return (f"refuses this expression ({why})",)
    ours = expressions.compile_expression(text, time_zone=time_zone, gap=gap, overlap=overlap)
    if not isinstance(ours, cron.Cron):
        seconds = "counts @every from its last run, in whole seconds"
        return (f"{seconds}; a Schedule counts from startTime or its creation",)
    local, found = instants.LocalTime(time_zone), list[str]()
    for difference in differences(text, ours, from_us):
        does = "does" if difference.left_out else "does not"
        way = "no choice of dst has the CronJob's times"
        if difference.remedy:
            way = f"the CronJob's way is {difference.remedy}"
        found.append(f"{difference.text(local)}, a Schedule {does}; {way}")
    return tuple(found)


def differences(text: str, ours: cron.Cron, from_us: int) -> list[Difference]:
    """Return the next difference at each kind of clock change; CronJob must accept the text."""
    search, begin = _Search(text.strip(), ours, from_us // _SECOND_US), from_us // _SECOND_US
    found: dict[bool, Difference] = {}
    for start, before, after in ours.zone.changes_after(begin):
        if start > begin + search.years * 366 * _DAY:
            break
        if (after > before) not in found and (one := search.around(start, before, after)):
            found[after > before] = one
    return sorted(found.values(), key=lambda difference: difference.day)


class _Search:
    """A search for differences of one expression, from the CronJob's creation on."""

    def __init__(self, text: str, ours: cron.Cron, begin: int) -> None:
        self._text, self._ours, self._begin = text, ours, begin
        self._zone = ours.zone
        parsed = syntax.parse(text, identity="")
        self._theirs = CronJobTimes(parsed, self._zone)
        is_busy = parsed.minutes.bit_count() * parsed.hours.bit_count() > _BUSY
        self.years = _YEARS_OF_BUSY if is_busy and parsed.day_rule.is_every_day else _YEARS

    def around(self, start: int, before: int, after: int) -> Difference | None:
        """Compare from the midnight before a clock change to the first run a day after it."""
        midnight = start + after - (start + after) % _DAY
        begin, end = min(midnight - before, start), midnight + _DAY - after
        begin = max(begin, self._begin + 1)
        their_times = self._their_times(begin, end)
        last = max(their_times, default=begin)
        last = last if last >= end else end + _REACH
        if (after_it := next(self._zone.changes_after(end), None)) is not None:
            last = min(last, max(end, after_it[0] - _DAY))  # the next change is compared by itself
        their_times = {each for each in their_times if each <= last}
        our_times = _times(self._ours, begin, last)
        if our_times == their_times:
            return None
        return Difference(
            day=instants.utc_text(midnight * _SECOND_US)[:10],
            left_out=tuple(sorted(our_times - their_times)),
            added=tuple(sorted(their_times - our_times)),
            runs=sum(begin <= second < end for second in their_times),
            remedy=self._remedy(their_times, begin, last),
        )

    def _their_times(self, begin: int, end: int) -> set[int]:
        """Return the CronJob's times up to the first after the end, searched from its last run."""
        found = set[int]()
        second = self._theirs.next_after(self._run_before(begin))
        # If clocks went back at 00:01, the search may find the same time again and never end.
        while second is not None and second not in found:
            found.add(second)
            second = self._theirs.next_after(second) if second < end else None
        return {each for each in found if each >= begin}

    def _run_before(self, begin: int) -> int:
        """Return an earlier run of both, far from any clock change, or the CronJob's creation."""
        second = begin
        while True:
            slot_us = self._ours.previous_before((second - _DAY) * _SECOND_US)
            if slot_us is None or slot_us <= self._begin * _SECOND_US:
                return self._begin
            second = slot_us // _SECOND_US
            change = next(iter(self._zone.changes_after(second - _DAY)), None)
            if change is None or change[0] > second + _DAY:
                return second

    def _remedy(self, their_times: set[int], begin: int, last: int) -> str:
        for gap, overlap in _CHOICES:
            other = expressions.compile_expression(
                self._text, time_zone=self._zone.name, gap=gap, overlap=overlap
            )
            if _times(other, begin, last) == their_times:
                named = [f"gap: {gap}"] * (gap is not cron.Gap.RUN_ONCE)
                named += [f"overlap: {overlap}"] * (overlap is not cron.Overlap.FIRST)
                return f"dst: {{{', '.join(named)}}}"
        return ""


def _times(of: expressions.Expression, begin: int, last: int) -> set[int]:
    slots_us = expression.walk(of, begin * _SECOND_US - 1, last * _SECOND_US)
    return {slot_us // _SECOND_US for slot_us in slots_us}


def _item_refusal(kind: fields.FieldKind, item: str) -> str:
    parts = _ITEM.fullmatch(item)
    if parts is None or parts["low"].upper() == "H":
        return "it knows no L, W, # or H"
    numbers = {name: kind.low + place for place, name in enumerate(kind.names)}
    words = [parts[end].upper() for end in ("low", "high") if parts[end]]
    ends = [int(word) if word[-1].isdecimal() else numbers.get(word, kind.low) for word in words]
    if 7 in ends and kind is fields.WEEKDAY:
        return "it writes Sunday as 0"
    return "its ranges do not wrap" if ends != sorted(ends) else ""


def _listed(seconds: tuple[int, ...], local: instants.LocalTime, cut: int) -> str:
    times = [local.text(second * _SECOND_US)[cut:] for second in seconds[:4]]
    more = len(seconds) - len(times)
    return ", ".join(times) + (f" and {more} more times" if more else "")


# -- the times of a CronJob ------------------------------------------------------------------------


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
_HOUR, _MINUTE = 3_600, 60
#: robfig/cron gives up after this many years.
_MOST_YEARS = 5
#: In a zone without some midnight the search may loop for ever; it never needs this many steps.
_MOST_STEPS = 10_000
#: The units of a wall clock, each with its lowest value.
_UNITS = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}


class CronJobTimes:
    """The times of a CronJob with one expression in one zone.

    As in robfig/cron, a wall clock moves forward until every field matches, from the month to the
    second. A unit that comes back to its lowest value has changed larger ones, so the search begins
    again with the month.
    """

    def __init__(self, fields: syntax.CronFields, zone: timezones.Zone) -> None:
        self._fields = fields
        self._zone = zone
        self._at, self._clock = 0, _EPOCH

    def next_after(self, second: int) -> int | None:
        """Return the first run after a second; None if robfig/cron gives up or hangs."""
        self._go_to(second + 1)
        last_year, is_moved, units = self._clock.year + _MOST_YEARS, False, list(_UNITS)
        for _ in range(_MOST_STEPS):
            if not units:
                return self._at
            if len(units) == len(_UNITS) and self._clock.year > last_year:
                break
            unit, *smaller = units
            if self._matches(unit):
                units = smaller
                continue
            if not is_moved and unit == "minute":
                self._go_to(self._at - self._at % _MINUTE)
            elif not is_moved and smaller:
                lowest: Any = {each: _UNITS[each] for each in smaller}
                self._set(self._clock.replace(**lowest))
            is_moved = True
            self._move(unit)
            if getattr(self._clock, unit) == _UNITS[unit]:
                units = list(_UNITS)
        return None

    def _matches(self, unit: str) -> bool:
        rule, clock = self._fields.day_rule, self._clock
        if unit == "month":
            return bool(rule.months >> clock.month & 1)
        if unit == "day":
            by_day = bool(rule.day.mask >> clock.day & 1)
            by_weekday = bool(rule.weekday.mask >> clock.isoweekday() % 7 & 1)
            if rule.day.starred or rule.weekday.starred:
                return by_day and by_weekday
            return by_day or by_weekday
        if unit == "hour":
            return bool(self._fields.hours >> clock.hour & 1)
        if unit == "minute":
            return bool(self._fields.minutes >> clock.minute & 1)
        return not clock.second

    def _move(self, unit: str) -> None:
        """Move to the next value of a unit."""
        clock = self._clock
        if unit == "month":
            # the same day and time a month later; a day past its end falls into the next month
            year, month = divmod(clock.year * 12 + clock.month, 12)
            first = clock.replace(year=year, month=month + 1, day=1)
            self._set(first + dt.timedelta(days=clock.day - 1))
        elif unit == "day":
            self._set(clock + dt.timedelta(days=1))
            if hour := self._clock.hour:  # there was no midnight
                self._go_to(self._at + _HOUR * (24 - hour if hour > 12 else -hour))
        elif unit == "hour":
            self._go_to(self._at + _HOUR)
        elif unit == "second":
            self._go_to(self._at + _MINUTE - clock.second)
        else:
            # to the next minute that matches or the full hour; 1 if the clock changes before
            later = self._fields.minutes >> clock.minute + 1
            left = (later & -later).bit_length() or 60 - clock.minute
            end = self._at + left * _MINUTE
            is_steady = self._zone.offset_at(end) == self._zone.offset_at(self._at)
            self._go_to(end if is_steady else self._at + _MINUTE)

    def _go_to(self, second: int) -> None:
        self._at = second
        self._clock = _EPOCH + dt.timedelta(seconds=second + self._zone.offset_at(second))

    def _set(self, clock: dt.datetime) -> None:
        """Set the instant that Go chooses for a wall-clock time, even one that does not exist."""
        local = (clock - _EPOCH) // dt.timedelta(seconds=1)
        offset = self._zone.offset_at(local)
        self._go_to(local - (self._zone.offset_at(local - offset) if offset else 0))
