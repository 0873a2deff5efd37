"""Several patterns as one, for schedules that share a zone: coinciding local times match once.

The only hard question is the count. Days are sorted by which patterns match on them; for each such
set of patterns the times of day are joined once, as flags of 86,400 seconds. So a year costs as
much as its days, however many slots it has. How many matches lie on a period is counted in the same
flags: a slice of them for each time of day at which the period can enter a day.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence

from duepoint.expressions import pattern

_DAY = 86_400

#: A progression of local seconds: where it begins, and how far one is from the next.
Steps = tuple[int, int]


class Union:
    """The local times that at least one of the patterns matches."""

    def __init__(self, patterns: Sequence[pattern.Pattern]) -> None:
        self._patterns = tuple(patterns)
        self.per_day = 0
        self.row: tuple[Sequence[int], int] = ((), _DAY)
        self._joined = functools.lru_cache(maxsize=16)(self._flags_of)
        self._times = functools.lru_cache(maxsize=64)(self._count_of)

    def first_from(self, local: int) -> int:
        return min(each.first_from(local) for each in self._patterns)

    def last_until(self, local: int) -> int:
        return max(each.last_until(local) for each in self._patterns)

    def count(self, local_from: int, local_to: int) -> int:
        if local_to <= local_from:
            return 0
        first, first_time = divmod(local_from, _DAY)
        last, last_time = divmod(local_to, _DAY)
        groups = self._days_by_patterns(first, last + 1)
        at_first, at_last = groups.get(first, 0), groups.get(last, 0)
        groups.pop(last, None)
        sets = Counter(groups.values())
        whole = sum(days * self._times(members) for members, days in sets.items())
        return (
            whole
            + self._joined(at_last).count(1, 0, last_time)
            - self._joined(at_first).count(1, 0, first_time)
        )

    def count_on(self, local_from: int, local_to: int, progression: Steps) -> int:
        """How many matches in ``[local_from, local_to)`` are an anchor plus whole steps."""
        anchor, step = progression
        total, known = 0, dict[tuple[int, int], int]()
        for day, members, low, high in self._days(max(local_from, anchor), local_to):
            at = low + (anchor - day * _DAY - low) % step
            if high - low < _DAY:
                total += self._joined(members)[at:high:step].count(1)
                continue
            if (members, at) not in known:
                known[members, at] = self._joined(members)[at::step].count(1)
            total += known[members, at]
        return total

    def count_on_any(self, local_from: int, local_to: int, several: Sequence[Steps]) -> int:
        """How many matches lie on at least one of the progressions, by marking them."""
        total = 0
        for day, members, low, high in self._days(local_from, local_to):
            marks = bytearray(_DAY)
            for anchor, step in several:
                first = max(low, anchor - day * _DAY)
                first += (anchor - day * _DAY - first) % step
                marks[first:high:step] = b"\1" * len(range(first, high, step))
            shared = int.from_bytes(marks) & int.from_bytes(self._joined(members))
            total += shared.bit_count()
        return total

    def _days(self, local_from: int, local_to: int) -> Iterator[tuple[int, int, int, int]]:
        """Days with a match in the span: day, patterns, and the part of the day, in seconds."""
        if local_to <= local_from:
            return
        first, last = local_from // _DAY, (local_to - 1) // _DAY
        for day, members in self._days_by_patterns(first, last + 1).items():
            begin = day * _DAY
            yield day, members, max(local_from - begin, 0), min(local_to - begin, _DAY)

    def _days_by_patterns(self, first: int, end: int) -> dict[int, int]:
        """For each day in ``[first, end)`` with a match, the patterns that match, as bits."""
        groups: dict[int, int] = {}
        for index, each in enumerate(self._patterns):
            for day in each.days_between(first, end):
                groups[day] = groups.get(day, 0) | 1 << index
        return groups

    def _count_of(self, members: int) -> int:
        return self._joined(members).count(1)

    def _flags_of(self, members: int) -> bytes:
        """One byte for each second of the day, 1 where one of the patterns matches."""
        flags = bytearray(_DAY)
        for index, each in enumerate(self._patterns):
            if members >> index & 1:
                each.mark_times(flags)
        return bytes(flags)
