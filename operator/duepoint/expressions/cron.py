"""Cron expressions in a time zone: next, previous and count over stretches of constant offset.

Comes in: matching local times (pattern.Pattern or several of them) and the stretches of a zone with
the daylight-saving choices worked in (dst.py). The invariant: the slots of a stretch are the
matching local times in its ``[local_from, local_to)``, plus its first instant when that stands in
for missing ones (``missing_from``); all three questions are answered from this one definition.

Nothing is stepped through minute by minute. Local times that never match cost one look at each year
up to 2112, which is how "never" is decided in bounded time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from duepoint.expressions import dst, expression, pattern, syntax, timezones, wording

_SECOND_US = expression.SECOND_US

#: From so many times a day on, remembering the row pays: ``* * * * *`` steps in half the time.
_BUSY = 6


class LocalTimes(Protocol):
    """Matching local times, in seconds since 1970-01-01T00:00:00 by the wall clock.

    Attributes:
        per_day: how many match on a matching day; 0 when days differ.
        row: offsets of matches from the start of any matching day (or minute), and its length.
    """

    per_day: int
    row: tuple[Sequence[int], int]

    def first_from(self, local: int) -> int:
        """The first match at or after; a number beyond all others when there is none."""
        ...

    def last_until(self, local: int) -> int:
        """The last match at or before; a number below all others when there is none."""
        ...

    def count(self, local_from: int, local_to: int) -> int:
        """How many matches lie in ``[local_from, local_to)``."""
        ...


class Zoned:
    """The slots of local times; immutable to its users, what was last used is remembered."""

    __slots__ = ("_here", "_pattern", "_row", "starts", "stretches")

    def __init__(
        self, pattern: LocalTimes, stretches: tuple[dst.Stretch, ...], starts: tuple[int, ...]
    ) -> None:
        self._pattern = pattern
        self.stretches = stretches
        self.starts = starts  # of the stretches; the first one's does not matter
        self._here = self._unpacked(0)
        self._row: tuple[int, int, Sequence[int]] = (0, 0, ())

    def next_after(self, instant_us: int) -> int | None:
        begin_us, last_us, times = self._row
        if begin_us <= instant_us < last_us:
            passed = (instant_us - begin_us) // _SECOND_US
            return begin_us + times[bisect_right(times, passed)] * _SECOND_US
        second = instant_us // _SECOND_US + 1
        start, end, offset, local_from, local_to, index = self._here
        if not start < second < end:
            second = max(second, self.stretches[0].start)
            start, end, offset, local_from, local_to, index = self._move_to(second)
            if second == start and self._stands_in(index):
                return start * _SECOND_US
        local = second + offset
        if not local_from <= local <= local_to:  # in an overlap, times that count elsewhere
            local = local_from if local < local_from else local_to
        found = self._pattern.first_from(local)
        if found < local_to:
            if self._pattern.per_day >= _BUSY:
                self._remember(found, offset, local_from, local_to)
            return (found - offset) * _SECOND_US
        return self._next_in_later_stretch(index + 1, found)

    def previous_before(self, instant_us: int) -> int | None:
        second = (instant_us - 1) // _SECOND_US
        begin_us, last_us, times = self._row
        if begin_us < instant_us <= last_us:
            at = bisect_right(times, second - begin_us // _SECOND_US) - 1
            if at >= 0:
                return begin_us + times[at] * _SECOND_US
        start, end, offset, local_from, local_to, index = self._here
        if not start < second < end:
            second = min(second, self.stretches[-1].end - 1)
            if second < self.stretches[0].start:
                return None
            start, end, offset, local_from, local_to, index = self._move_to(second)
        local = second + offset
        if not local_from - 1 <= local < local_to:
            local = local_from - 1 if local < local_from else local_to - 1
        found = self._pattern.last_until(local)
        if found >= local_from:
            if self._pattern.per_day >= _BUSY:
                self._remember(found, offset, local_from, local_to)
            return (found - offset) * _SECOND_US
        return self._previous_in_earlier_stretch(index, found)

    def count_between(self, after_us: int, through_us: int) -> int:
        first = max(after_us // _SECOND_US + 1, self.stretches[0].start)
        end = min(through_us // _SECOND_US + 1, self.stretches[-1].end)
        if first >= end:
            return 0
        count = 0
        for index in range(self._index_of(first), self._index_of(end - 1) + 1):
            stretch = self.stretches[index]
            count += self._pattern.count(
                max(first + stretch.offset, stretch.local_from),
                min(end + stretch.offset, stretch.local_to),
            )
            count += first <= stretch.start and self.adds_its_start(index)
        return count

    def adds_its_start(self, index: int) -> bool:
        """Whether a stretch's first instant is a slot for missing times, and not by itself."""
        local_from = self.stretches[index].local_from
        return self._stands_in(index) and not self.counts_local(index, local_from)

    def counts_local(self, index: int, local: int) -> bool:
        """Whether the local time matches and counts in the stretch."""
        stretch = self.stretches[index]
        inside = stretch.local_from <= local < stretch.local_to
        return inside and self._pattern.first_from(local) == local

    def _next_in_later_stretch(self, index: int, found: int) -> int | None:
        """``found`` is the first match that the stretches before ``index`` do not contain."""
        for later in range(index, len(self.stretches)):
            stretch = self.stretches[later]
            if stretch.missing_from <= found < stretch.local_from:
                return stretch.start * _SECOND_US
            if stretch.rewinds or found < stretch.local_from:
                found = self._pattern.first_from(stretch.local_from)
            if found < stretch.local_to:
                self._here = self._unpacked(later)
                return (found - stretch.offset) * _SECOND_US
        return None

    def _previous_in_earlier_stretch(self, index: int, found: int) -> int | None:
        """``found`` is the last match before the local times of the stretch at ``index``."""
        while True:
            stretch = self.stretches[index]
            if stretch.missing_from <= found < stretch.local_from:
                return stretch.start * _SECOND_US
            if index == 0:
                return None
            earlier = self.stretches[index - 1]
            if stretch.rewinds or found >= earlier.local_to:
                found = self._pattern.last_until(earlier.local_to - 1)
            if found >= earlier.local_from:
                return (found - earlier.offset) * _SECOND_US
            index -= 1

    def _stands_in(self, index: int) -> bool:
        """Whether the first instant of the stretch is a slot for local times missing before it."""
        stretch = self.stretches[index]
        if stretch.missing_from == stretch.local_from:
            return False
        return self._pattern.first_from(stretch.missing_from) < stretch.local_from

    def _remember(self, local: int, offset: int, local_from: int, local_to: int) -> None:
        """Keep the row of times that holds this match, if the offset does not change within it."""
        row, length = self._pattern.row
        begin = local - local % length
        if local_from < begin and begin + length < local_to:
            begin_us = (begin - offset) * _SECOND_US
            self._row = (begin_us, begin_us + row[-1] * _SECOND_US, row)

    def _index_of(self, second: int) -> int:
        return bisect_right(self.starts, second) - 1

    def _move_to(self, second: int) -> tuple[int, int, int, int, int, int]:
        """Remember the stretch of the second, in one assignment so that threads may share us."""
        self._here = self._unpacked(self._index_of(second))
        return self._here

    def _unpacked(self, index: int) -> tuple[int, int, int, int, int, int]:
        stretch = self.stretches[index]
        return (
            stretch.start,
            stretch.end,
            stretch.offset,
            stretch.local_from,
            stretch.local_to,
            index,
        )


class Cron(Zoned):
    """The slots of one cron text.

    Attributes:
        pattern: its local times.
        zone_name: the zone in which they are read, as ``timezones.located`` takes it.
    """

    __slots__ = ("_fields", "pattern", "zone_name")

    def __init__(
        self, fields: syntax.CronFields, *, zone_name: str, gap: dst.Gap, overlap: dst.Overlap
    ) -> None:
        self.pattern = pattern.Pattern(
            fields.day_rule, hours=fields.hours, minutes=fields.minutes, seconds=fields.seconds
        )
        super().__init__(
            self.pattern,
            dst.stretches(zone_name, sweeping=fields.sweeping, gap=gap, overlap=overlap),
            timezones.located(zone_name).starts,
        )
        self._fields = fields
        self.zone_name = zone_name

    @property
    def lists_years(self) -> bool:
        """Whether the text restricts the years, so that it may be over one day."""
        return self._fields.day_rule.years is not None

    def describe(self) -> str:
        return f"{wording.describe(self._fields)}, {timezones.located(self.zone_name).name}"
