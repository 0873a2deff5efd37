"""Several patterns as one, for schedules that share a zone: coinciding local times match once.

The only hard question is the count. Days are sorted by which patterns match on them; for each such
set of patterns the times of day are joined once, as flags of 86,400 seconds. So a year costs as
much as its days, however many slots it has.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

from duepoint.expressions import pattern

_DAY = 86_400


class Union:
    """The local times that at least one of the patterns matches."""

    def __init__(self, patterns: Sequence[pattern.Pattern]) -> None:
        self._patterns = tuple(patterns)
        self.per_day = 0
        self.row: tuple[Sequence[int], int] = ((), _DAY)
        self._joined = functools.lru_cache(maxsize=16)(self._flags_of)

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
        whole = sum(days * self._joined(members).count(1) for members, days in sets.items())
        return (
            whole
            + self._joined(at_last).count(1, 0, last_time)
            - self._joined(at_first).count(1, 0, first_time)
        )

    def _days_by_patterns(self, first: int, end: int) -> dict[int, int]:
        """For each day in ``[first, end)`` with a match, the patterns that match, as bits."""
        groups: dict[int, int] = {}
        for index, each in enumerate(self._patterns):
            for day in each.days_between(first, end):
                groups[day] = groups.get(day, 0) | 1 << index
        return groups

    def _flags_of(self, members: int) -> bytes:
        """One byte for each second of the day, 1 where one of the patterns matches."""
        flags = bytearray(_DAY)
        for index, each in enumerate(self._patterns):
            if members >> index & 1:
                each.mark_times(flags)
        return bytes(flags)
