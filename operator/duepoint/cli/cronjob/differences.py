"""Finds the differences between a CronJob and a Schedule with the same expression.

CronJob is built on robfig/cron v3. A small grammar here decides which texts it accepts. In UTC the
times are the same by design, so differences are searched only at clock changes of a zone. They are
found by comparing the times of both, from the day of the change to the CronJob's first run after
it: when robfig's search meets a midnight that does not exist, it can skip a month. Source:
``parser.go`` of robfig/cron v3.0.1.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from duepoint import expressions
from duepoint.cli import instants
from duepoint.expressions import cron, expression, fields, syntax, timezones

_ITEM = re.compile(
    r"(?P<low>[*?]|\+?\d+|[A-Za-z]{3})(?:-(?P<high>\+?\d+|[A-Za-z]{3}))?(?:/\+?\d+)?", re.ASCII
)
_FIVE = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)

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
        remedy: the ``dst`` with which a Schedule has the CronJob's times; empty if there is none.
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
    if len(words) != 5:
        return f"{len(words)} fields instead of 5"
    for kind, word in zip(_FIVE, words, strict=True):
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
    for difference in differences(text, ours, time_zone, from_us):
        does = "does" if difference.left_out else "does not"
        way = "no choice of dst has the CronJob's times"
        if difference.remedy:
            way = f"the CronJob's way is {difference.remedy}"
        found.append(f"{difference.text(local)}, a Schedule {does}; {way}")
    return tuple(found)


def differences(text: str, ours: cron.Cron, time_zone: str, from_us: int) -> list[Difference]:
    """Return the next difference at each kind of clock change; CronJob must accept the text."""
    search = _Search(text.strip(), ours, time_zone, from_us // _SECOND_US)
    found: dict[bool, Difference] = {}
    for start, before, after in search.changes():
        if (after > before) not in found and (one := search.around(start, before, after)):
            found[after > before] = one
    return sorted(found.values(), key=lambda difference: difference.day)


class _Search:
    """A search for differences of one expression, from the CronJob's creation on."""

    def __init__(self, text: str, ours: cron.Cron, time_zone: str, begin: int) -> None:
        self._text = text
        self._ours = ours
        self._zone_name = time_zone
        self._zone = timezones.load(time_zone)
        fields = syntax.parse(text, identity="")
        self._theirs = CronJobTimes(fields, self._zone)
        self._begin = begin
        self._is_same_every_year = fields.day_rule.is_every_day

    def changes(self) -> Iterator[tuple[int, int, int]]:
        """Yield the clock changes to search."""
        week_us = 7 * _DAY * _SECOND_US
        from_us = self._begin * _SECOND_US
        is_busy = self._ours.count_between(from_us, from_us + week_us) > 7 * _BUSY
        years = _YEARS_OF_BUSY if is_busy and self._is_same_every_year else _YEARS
        last = self._begin + years * 366 * _DAY
        for start, before, after in self._zone.changes_after(self._begin):
            if start > last:
                return
            yield start, before, after

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
                self._text, time_zone=self._zone_name, gap=gap, overlap=overlap
            )
            if _times(other, begin, last) == their_times:
                chosen = {"gap": gap, "overlap": overlap}
                default = {"gap": cron.Gap.RUN_ONCE, "overlap": cron.Overlap.FIRST}
                named = [f"{key}: {chosen[key]}" for key in chosen if chosen[key] != default[key]]
                return f"dst: {{{', '.join(named)}}}"
        return ""


def _times(of: expressions.Expression, begin: int, last: int) -> set[int]:
    slots_us = expression.walk(of, begin * _SECOND_US - 1, last * _SECOND_US)
    return {slot_us // _SECOND_US for slot_us in slots_us}


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


def _listed(seconds: tuple[int, ...], local: instants.LocalTime, cut: int) -> str:
    times = [local.text(second * _SECOND_US)[cut:] for second in seconds[:4]]
    more = len(seconds) - len(times)
    return ", ".join(times) + (f" and {more} more times" if more else "")


# -- the times of a CronJob ------------------------------------------------------------------------


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock has no zone
_HOUR, _MINUTE = 3_600, 60
#: robfig/cron gives up after this many years.
_MOST_YEARS = 5
#: In a zone without some midnight the search may loop for ever; it never needs this many moves.
_MOST_MOVES = 10_000


class _GoesRound(Exception):
    """The library would search for ever."""


class CronJobTimes:
    """The times of a CronJob with one expression in one zone.

    A wall clock moves forward until every field matches, as in robfig/cron. The method of each unit
    returns False if a larger unit has changed, so that its field has to be checked again.
    """

    def __init__(self, fields: syntax.CronFields, zone: timezones.Zone) -> None:
        self._fields = fields
        self._zone = zone
        self._is_moved, self._moves_left = False, 0
        self._at, self._clock = 0, _EPOCH

    def next_after(self, second: int) -> int | None:
        """Return the first run after a second; None if robfig/cron gives up or hangs."""
        self._at = 0
        self._add(second + 1)
        self._is_moved, self._moves_left = False, _MOST_MOVES
        last_year = self._clock.year + _MOST_YEARS
        units = (self._months, self._days, self._hours, self._minutes, self._seconds)
        with contextlib.suppress(_GoesRound):
            while self._clock.year <= last_year:
                if all(matches() for matches in units):
                    return self._at
        return None

    def _months(self) -> bool:
        while not self._fields.day_rule.months >> self._clock.month & 1:
            if self._moves():
                self._set(self._clock.replace(day=1, hour=0, minute=0, second=0))
            # the same day and time a month later; a day past its end falls into the next month
            year, month = divmod(self._clock.year * 12 + self._clock.month, 12)
            first = self._clock.replace(year=year, month=month + 1, day=1)
            self._set(first + dt.timedelta(days=self._clock.day - 1))
            if self._clock.month == 1:
                return False
        return True

    def _days(self) -> bool:
        while not self._day_matches():
            if self._moves():
                self._set(self._clock.replace(hour=0, minute=0, second=0))
            self._set(self._clock + dt.timedelta(days=1))
            if self._clock.hour:  # there was no midnight
                late = self._clock.hour > 12
                self._add(_HOUR * (24 - self._clock.hour if late else -self._clock.hour))
            if self._clock.day == 1:
                return False
        return True

    def _hours(self) -> bool:
        while not self._fields.hours >> self._clock.hour & 1:
            if self._moves():
                self._set(self._clock.replace(minute=0, second=0))
            self._add(_HOUR)
            if self._clock.hour == 0:
                return False
        return True

    def _minutes(self) -> bool:
        while not self._fields.minutes >> self._clock.minute & 1:
            if self._moves():
                self._add(-(self._at % _MINUTE))
            # to the next minute that matches or the full hour; 1 if the clock changes before
            later = self._fields.minutes >> self._clock.minute + 1
            left = (later & -later).bit_length() or _HOUR // _MINUTE - self._clock.minute
            if self._period(self._at + left * _MINUTE) != self._period(self._at):
                left = 1
            self._add(_MINUTE * left)
            if self._clock.minute == 0:
                return False
        return True

    def _seconds(self) -> bool:
        if self._clock.second:
            self._moves()
            self._add(_MINUTE - self._clock.second)
            return False
        return True

    def _moves(self) -> bool:
        """Count a move; return whether it is the first, which sets the smaller units to zero."""
        self._moves_left -= 1
        if not self._moves_left:
            raise _GoesRound
        is_first, self._is_moved = not self._is_moved, True
        return is_first

    def _day_matches(self) -> bool:
        rule, clock = self._fields.day_rule, self._clock
        by_day = bool(rule.day.mask >> clock.day & 1)
        by_weekday = bool(rule.weekday.mask >> clock.isoweekday() % 7 & 1)
        if rule.day.starred or rule.weekday.starred:
            return by_day and by_weekday
        return by_day or by_weekday

    def _add(self, seconds: int) -> None:
        self._at += seconds
        offset = self._zone.offsets[self._period(self._at)]
        self._clock = _EPOCH + dt.timedelta(seconds=self._at + offset)

    def _set(self, clock: dt.datetime) -> None:
        """Set the instant that Go chooses for a wall-clock time, even one that does not exist."""
        local = (clock - _EPOCH) // dt.timedelta(seconds=1)
        period = self._period(local)
        offset = self._zone.offsets[period]
        begins, ends = self._zone.starts[period], (*self._zone.starts, 1 << 62)[period + 1]
        if offset and not begins <= local - offset < ends:
            offset = self._zone.offsets[self._period(local - offset)]
        self._at = 0
        self._add(local - offset)

    def _period(self, second: int) -> int:
        return bisect_right(self._zone.starts, second) - 1
