"""Cron expressions in a time zone: next, previous and count over stretches of constant offset.

A zone is a sequence of stretches with a constant offset. Between two of them the clock jumps:
forward, so that local times are missing (a gap), or back, so that they come twice (an overlap)::

    gap      ...01:59 | 03:00...        local 02:00-03:00 does not exist
    overlap  ...01:59 | 01:00...        local 01:00-02:00 exists in both stretches

Expressions that sweep (a wildcard, a step or a full range in hour or minute) match every local
time that exists, as often as it exists: their real cadence goes on through both changes. Fixed
times are moved (``Gap``) or chosen (``Overlap``) as the user asks. The invariant: the slots of a
stretch are the matching local times in its ``[local_from, local_to)``, plus its first instant if
that replaces missing ones (``missing_from``). The next slot, the previous one and the count all
follow from this definition.

Nothing steps through time minute by minute. If no local time matches, the search looks once at each
year up to 2112, which bounds the time to decide "never".
"""

from __future__ import annotations

import enum
import functools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from duepoint.expressions import expression, pattern, syntax, timezones
from duepoint.expressions import fields as masks

_SECOND_US = expression.SECOND_US


class Gap(enum.StrEnum):
    """What happens to a fixed time on a day when the clock skips it."""

    RUN_ONCE = "RunOnce"
    SKIP = "Skip"


class Overlap(enum.StrEnum):
    """Which one counts when a fixed time comes twice on a day."""

    FIRST = "First"
    SECOND = "Second"
    BOTH = "Both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A period of constant offset, in seconds.

    Attributes:
        start, end: the UTC seconds ``[start, end)`` that it covers.
        offset: local time minus UTC.
        local_from, local_to: the local times ``[local_from, local_to)`` that count in it.
        missing_from: a match in the local times ``[missing_from, local_from)``, which do not
            exist, makes ``start`` a slot; equal to ``local_from`` if there are none.
        rewinds: whether local times of the previous stretch count here once more.
    """

    start: int
    end: int
    offset: int
    local_from: int
    local_to: int
    missing_from: int
    rewinds: bool


@functools.lru_cache(maxsize=1024)
def stretches(
    zone: timezones.Zone, *, sweeping: bool, gap: Gap, overlap: Overlap
) -> tuple[Stretch, ...]:
    """Return the stretches from FIRST_US to LAST_US, without holes between them."""
    if sweeping:
        gap, overlap = Gap.SKIP, Overlap.BOTH
    ends = (*zone.starts[1:], expression.LAST_US // expression.SECOND_US + 1)
    starts = (expression.FIRST_US // expression.SECOND_US, *zone.starts[1:])
    earlier = (zone.offsets[0], *zone.offsets)
    later = (*zone.offsets[1:], zone.offsets[-1])
    return tuple(
        _stretch(period, gap, overlap)
        for period in zip(starts, ends, earlier, zone.offsets, later, strict=False)
    )


def _stretch(period: tuple[int, int, int, int, int], gap: Gap, overlap: Overlap) -> Stretch:
    start, end, offset_before, offset, offset_after = period
    local_from, local_to = start + offset, end + offset
    repeats = offset_before > offset
    if repeats and overlap is Overlap.FIRST:
        local_from = start + offset_before
    if offset > offset_after and overlap is Overlap.SECOND:
        local_to = end + offset_after
    return Stretch(
        start=start,
        end=end,
        offset=offset,
        local_from=local_from,
        local_to=local_to,
        missing_from=min(start + offset_before, local_from) if gap is Gap.RUN_ONCE else local_from,
        rewinds=repeats and overlap is Overlap.BOTH,
    )


class Cron:
    """The slots of one cron text; immutable to its users, but caches what it last used.

    Attributes:
        fields: the parsed text.
        pattern: its local times.
        zone: the zone of these local times.
    """

    __slots__ = ("_here", "fields", "pattern", "stretches", "zone")

    def __init__(
        self, fields: syntax.CronFields, *, zone: timezones.Zone, gap: Gap, overlap: Overlap
    ) -> None:
        self.pattern = pattern.Pattern(fields)
        self.stretches = stretches(zone, sweeping=fields.sweeping, gap=gap, overlap=overlap)
        self.zone = zone
        self.fields = fields
        #: Index of the stretch that was used last.
        self._here = 0

    def describe(self) -> str:
        rule = self.fields.day_rule
        words = [_times(self.fields), _days(rule)]
        months = masks.values_of(rule.months)
        if len(months) < 12:
            words.append(f"in {_listing(_runs(months, names=_MONTHS))}")
        if rule.years is not None:
            words.append(f"in {_listing(_runs(sorted(rule.years)))}")
        return f"{' '.join(words)}, {self.zone.name}"

    def next_after(self, instant_us: int) -> int | None:
        second = instant_us // _SECOND_US + 1
        index = self._here
        stretch = self.stretches[index]
        if not stretch.start < second < stretch.end:
            second = max(second, self.stretches[0].start)
            index = self._here = self._index_of(second)
            stretch = self.stretches[index]
            if second == stretch.start and self._replaces_missing(index):
                return second * _SECOND_US
        local = second + stretch.offset
        if not stretch.local_from <= local <= stretch.local_to:  # in an overlap: counts elsewhere
            local = stretch.local_from if local < stretch.local_from else stretch.local_to
        found = self.pattern.first_from(local)
        if found < stretch.local_to:
            return (found - stretch.offset) * _SECOND_US
        return self._next_in_later_stretch(index + 1, found)

    def previous_before(self, instant_us: int) -> int | None:
        second = (instant_us - 1) // _SECOND_US
        index = self._here
        stretch = self.stretches[index]
        if not stretch.start < second < stretch.end:
            second = min(second, self.stretches[-1].end - 1)
            if second < self.stretches[0].start:
                return None
            index = self._here = self._index_of(second)
            stretch = self.stretches[index]
        local = second + stretch.offset
        if not stretch.local_from - 1 <= local < stretch.local_to:
            local = (stretch.local_from if local < stretch.local_from else stretch.local_to) - 1
        found = self.pattern.last_until(local)
        if found >= stretch.local_from:
            return (found - stretch.offset) * _SECOND_US
        return self._previous_in_earlier_stretch(index, found)

    def count_between(self, after_us: int, through_us: int) -> int:
        first = max(after_us // _SECOND_US + 1, self.stretches[0].start)
        end = min(through_us // _SECOND_US + 1, self.stretches[-1].end)
        if first >= end:
            return 0
        count = 0
        for index in range(self._index_of(first), self._index_of(end - 1) + 1):
            stretch = self.stretches[index]
            count += self.pattern.count(
                max(first + stretch.offset, stretch.local_from),
                min(end + stretch.offset, stretch.local_to),
            )
            count += first <= stretch.start and self._adds_its_start(index)
        return count

    def _adds_its_start(self, index: int) -> bool:
        """Whether a stretch's first instant is a slot only because of missing times."""
        stretch, local_from = self.stretches[index], self.stretches[index].local_from
        counts = local_from < stretch.local_to and self.pattern.first_from(local_from) == local_from
        return self._replaces_missing(index) and not counts

    def _next_in_later_stretch(self, index: int, found: int) -> int | None:
        """Return the next slot; ``found``: the first match not in a stretch before ``index``."""
        for later in range(index, len(self.stretches)):
            stretch = self.stretches[later]
            if stretch.missing_from <= found < stretch.local_from:
                return stretch.start * _SECOND_US
            if stretch.rewinds or found < stretch.local_from:
                found = self.pattern.first_from(stretch.local_from)
            if found < stretch.local_to:
                self._here = later
                return (found - stretch.offset) * _SECOND_US
        return None

    def _previous_in_earlier_stretch(self, index: int, found: int) -> int | None:
        """Return the previous slot; ``found``: the last match before the stretch's local times."""
        while True:
            stretch = self.stretches[index]
            if stretch.missing_from <= found < stretch.local_from:
                return stretch.start * _SECOND_US
            if index == 0:
                return None
            earlier = self.stretches[index - 1]
            if stretch.rewinds or found >= earlier.local_to:
                found = self.pattern.last_until(earlier.local_to - 1)
            if found >= earlier.local_from:
                return (found - earlier.offset) * _SECOND_US
            index -= 1

    def _replaces_missing(self, index: int) -> bool:
        """Whether the first instant of the stretch is a slot for local times missing before it."""
        stretch = self.stretches[index]
        if stretch.missing_from == stretch.local_from:
            return False
        return self.pattern.first_from(stretch.missing_from) < stretch.local_from

    def _index_of(self, second: int) -> int:
        return bisect_right(self.zone.starts, second) - 1


# -- in plain words --------------------------------------------------------------------------------

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "",
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_NTH = ("", "first", "second", "third", "fourth", "fifth")

#: Up to this many times of day are listed one by one; more are described by minute and hour.
_LISTED_TIMES = 6


def _times(fields: syntax.CronFields) -> str:
    seconds, minutes, hours = (
        masks.values_of(mask) for mask in (fields.seconds, fields.minutes, fields.hours)
    )
    if len(seconds) * len(minutes) * len(hours) <= _LISTED_TIMES:
        shown = [
            f"{hour:02}:{minute:02}" + (f":{second:02}" if seconds != (0,) else "")
            for hour in hours
            for minute in minutes
            for second in seconds
        ]
        return f"at {_listing(shown)}"
    words = [_unit(minutes, 60, "minute")]
    if seconds != (0,):
        words = [_unit(seconds, 60, "second")]
        if len(minutes) < 60 or words[0].startswith("second"):
            words.append(f"of {_unit(minutes, 60, 'minute')}")
    # without its hours, "minute 5 every day" would read as once a day
    if len(hours) < 24 or words[-1].startswith(("minute", "of minute")):
        words.append(f"of {_unit(hours, 24, 'hour')}")
    return " ".join(words)


def _unit(values: Sequence[int], size: int, unit: str) -> str:
    """Return words such as "every minute", "every 15 minutes" or "minutes 5, 10 and 20-25"."""
    if len(values) == size:
        return f"every {unit}"
    step = values[1] - values[0] if len(values) > 2 else 0
    if step > 1 and list(values) == list(range(0, size, step)) and size % step == 0:
        return f"every {step} {unit}s"
    return f"{unit}{'s' * (len(values) > 1)} {_listing(_runs(values))}"


def _days(rule: masks.DayRule) -> str:
    by_day, by_weekday = list[str](), list[str]()
    if not rule.day.starred:
        by_day += [f"day {run}" for run in _runs(masks.values_of(rule.day.mask))]
        by_day += [f"the weekday nearest to day {day}" for day in masks.values_of(rule.day.nearest)]
        by_day += ["the last day"] * rule.day.last
        by_day += ["the last weekday (Monday to Friday)"] * rule.day.last_workday
    if not rule.weekday.starred:
        last = masks.values_of(rule.weekday.last_weekdays)
        nth = sorted(rule.weekday.nth_weekdays, key=lambda pair: (pair[1], pair[0]))
        by_weekday += _runs(masks.values_of(rule.weekday.mask), names=_WEEKDAYS)
        by_weekday += [f"the last {_WEEKDAYS[day]} of the month" for day in last]
        by_weekday += [f"the {_NTH[n]} {_WEEKDAYS[day]} of the month" for day, n in nth]
    month_days = f"on {_listing(by_day)} of the month" if by_day else ""
    weekdays = f"on {_listing(by_weekday)}" if by_weekday else ""
    if month_days and weekdays:
        return f"{month_days} or {weekdays}"
    return month_days or weekdays or "every day"


def _runs(values: Sequence[int], *, names: Sequence[str] | None = None) -> list[str]:
    """Return the values as texts, with three or more consecutive ones as a range."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    shown = []
    for run in runs:
        texts = [names[value] if names else str(value) for value in run]
        joiner = " to " if names else "-"
        shown += [f"{texts[0]}{joiner}{texts[-1]}"] if len(run) > 2 else texts
    return shown


def _listing(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"
