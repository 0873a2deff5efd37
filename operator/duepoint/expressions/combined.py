"""Several expressions as one, and any expression cut to a start and an end.

A Schedule may list several texts; an instant that two of them name is one slot. The next and the
previous slot are the nearest of the members' own. Only the count is hard: crons of one zone count
by days, periods by their meetings (every.py), and what lies in both by the flags of a day. Single
instants, and crons of another zone than the first, are looked up one by one.

Crons of one zone (``Rows``) with the same daylight-saving behaviour share a row of stretches
(dst.py); in one zone there are few such rows, and all change at the same instants. Between two
changes a row counts the local times of its window. So each stretch is cut where a window begins or
ends; in each piece the patterns of the rows that count there are joined (``Union``), and days are
counted, not slots. The first instant of a stretch, where it stands in for missing times, is looked
at by itself. ``Union`` sorts days by which patterns match on them; for each such set of patterns
the times of day are joined once, as flags of 86,400 seconds.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from duepoint.expressions import cron, every, expression, pattern


@dataclass(frozen=True, slots=True)
class Merged:
    """The union of the members' slots.

    Attributes:
        members: what the user wrote, for the words.
        crons: those of the first zone.
        periods: those whose slots are not all among a shorter one's.
        others: what is left: instants, windows, crons of other zones.
    """

    members: tuple[expression.Expression, ...]
    crons: Rows | None
    periods: tuple[every.Every, ...]
    others: tuple[expression.Instants, ...]

    def next_after(self, instant_us: int) -> int | None:
        slots_us = [part.next_after(instant_us) for part in self._parts()]
        return min((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def previous_before(self, instant_us: int) -> int | None:
        slots_us = [part.previous_before(instant_us) for part in self._parts()]
        return max((slot_us for slot_us in slots_us if slot_us is not None), default=None)

    def count_between(self, after_us: int, through_us: int) -> int:
        after_us = max(after_us, expression.FIRST_US - 1)
        through_us = min(through_us, expression.LAST_US)
        if through_us <= after_us:
            return 0
        total = every.count_of_any(self.periods, after_us, through_us)
        if self.crons:
            total += self.crons.count_between(after_us, through_us)
            total -= self.crons.count_on(self.periods, after_us, through_us)
        return total + len(self._only_others(after_us, through_us))

    def describe(self) -> str:
        return "; ".join(member.describe() for member in self.members)

    def _parts(self) -> Iterator[expression.Instants]:
        if self.crons:
            yield from self.crons.rows
        yield from self.periods
        yield from self.others

    def _only_others(self, after_us: int, through_us: int) -> set[int]:
        """Slots of ``others`` that no other part has."""
        found = {
            slot_us
            for part in self.others
            for slot_us in expression.walk(part, after_us, through_us)
            if not (self.crons and self.crons.has(slot_us))
        }
        return {
            slot_us
            for slot_us in found
            if not any(each.next_after(slot_us - 1) == slot_us for each in self.periods)
        }


def merged(expressions: Sequence[expression.Expression]) -> expression.Expression:
    """One expression for all; the only one itself. Raises ValueError where there is none."""
    distinct = tuple(dict.fromkeys(expressions))
    if not distinct:
        raise ValueError("there is no expression to merge")
    if len(distinct) == 1:
        return distinct[0]
    zone = next((each.zone_name for each in distinct if isinstance(each, cron.Cron)), "")
    crons = [each for each in distinct if isinstance(each, cron.Cron) and each.zone_name == zone]
    periods = [each for each in distinct if isinstance(each, every.Every)]
    others = [each for each in distinct if not isinstance(each, every.Every) and each not in crons]
    return Merged(
        distinct,
        Rows(crons) if crons else None,
        every.without_repeats(periods),
        tuple(others),
    )


# -- crons of one zone ---------------------------------------------------------------------------

_SECOND_US = expression.SECOND_US
_WHOLE_SECONDS = every.Every(anchor_us=0, period_us=_SECOND_US)

#: A period with so few slots in the span is looked up slot by slot.
_FEW = 200

#: Beyond so many meetings of periods, marking the seconds of each day is cheaper.
_MOST_MEETINGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Local times ``[local_from, local_to)`` of constant offset, and the rows that count there."""

    local_from: int
    local_to: int
    offset: int
    members: int


class Rows:
    """Cron expressions of one zone; immutable to its users."""

    def __init__(self, crons: Sequence[cron.Cron]) -> None:
        groups: dict[int, list[cron.Cron]] = {}  # by identity of the stretches, which dst.py shares
        for each in crons:
            groups.setdefault(id(each.stretches), []).append(each)
        self._groups = list(groups.values())
        self._unions: dict[int, Union] = {}
        self.rows: tuple[cron.Zoned, ...] = tuple(_joined(group) for group in self._groups)

    def has(self, slot_us: int) -> bool:
        return any(row.next_after(slot_us - 1) == slot_us for row in self.rows)

    def count_between(self, after_us: int, through_us: int) -> int:
        """How many slots lie in ``(after_us, through_us]``; one alone has its own way to count."""
        if len(self.rows) == 1:
            return self.rows[0].count_between(after_us, through_us)
        first, end = after_us // _SECOND_US + 1, through_us // _SECOND_US + 1
        pieces = sum(
            self._union(piece.members).count(piece.local_from, piece.local_to)
            for piece in self._pieces(first, end)
        )
        return pieces + sum(1 for _ in self._standing_in(first, end))

    def count_on(self, periods: Sequence[every.Every], after_us: int, through_us: int) -> int:
        """How many of them are slots of at least one of the periods, too."""
        met = (every.meeting(period, _WHOLE_SECONDS) for period in periods)
        whole = every.without_repeats([period for period in met if period is not None])
        signed = every.signed_meetings(whole, after_us, through_us, most=_MOST_MEETINGS)
        if signed is None:
            return self._marked(whole, after_us, through_us)
        return sum(
            sign * self._count_on_one(period, after_us, through_us)
            for period, sign in signed.items()
        )

    def _count_on_one(self, period: every.Every, after_us: int, through_us: int) -> int:
        if period.count_between(after_us, through_us) <= _FEW:
            return sum(
                self.has(slot_us) for slot_us in expression.walk(period, after_us, through_us)
            )
        anchor, step = period.anchor_us // _SECOND_US, period.period_us // _SECOND_US
        first, end = max(after_us // _SECOND_US + 1, anchor), through_us // _SECOND_US + 1
        pieces = sum(
            self._union(piece.members).count_on(
                piece.local_from, piece.local_to, (anchor + piece.offset, step)
            )
            for piece in self._pieces(first, end)
        )
        standing = self._standing_in(first, end)
        return pieces + sum((start - anchor) % step == 0 for start in standing)

    def _marked(self, periods: Sequence[every.Every], after_us: int, through_us: int) -> int:
        """The same where the periods meet in too many ways to sum them up."""
        steps = [(each.anchor_us // _SECOND_US, each.period_us // _SECOND_US) for each in periods]
        first, end = after_us // _SECOND_US + 1, through_us // _SECOND_US + 1
        pieces = 0
        for piece in self._pieces(first, end):
            local = [(anchor + piece.offset, step) for anchor, step in steps]
            joined = self._union(piece.members)
            pieces += joined.count_on_any(piece.local_from, piece.local_to, local)
        standing = self._standing_in(first, end)
        return pieces + sum(
            any(start >= anchor and (start - anchor) % step == 0 for anchor, step in steps)
            for start in standing
        )

    def _pieces(self, first: int, end: int) -> Iterator[_Piece]:
        """The local times of the UTC seconds ``[first, end)``, cut where a row begins or ends."""
        for windows in zip(*(row.stretches for row in self.rows), strict=True):
            if windows[0].end <= first or windows[0].start >= end:
                continue
            offset = windows[0].offset
            low = max(first, windows[0].start) + offset
            high = min(end, windows[0].end) + offset
            edges = {low, high}
            for window in windows:
                edges |= {
                    edge for edge in (window.local_from, window.local_to) if low < edge < high
                }
            for local_from, local_to in pairwise(sorted(edges)):
                members = sum(
                    (window.local_from <= local_from < window.local_to) << row
                    for row, window in enumerate(windows)
                )
                yield _Piece(
                    local_from=local_from, local_to=local_to, offset=offset, members=members
                )

    def _standing_in(self, first: int, end: int) -> Iterator[int]:
        """Seconds that are slots only because they stand in for missing local times."""
        for index, stretch in enumerate(self.rows[0].stretches):
            if first <= stretch.start < end and any(row.adds_its_start(index) for row in self.rows):
                local = stretch.start + stretch.offset
                if not any(row.counts_local(index, local) for row in self.rows):
                    yield stretch.start

    def _union(self, members: int) -> Union:
        found = self._unions.get(members)
        if found is None:
            groups = (group for row, group in enumerate(self._groups) if members >> row & 1)
            patterns = [each.pattern for group in groups for each in group]
            found = self._unions[members] = Union(patterns)
        return found


def _joined(crons: Sequence[cron.Cron]) -> cron.Zoned:
    if len(crons) == 1:
        return crons[0]
    joined = Union([each.pattern for each in crons])
    return cron.Zoned(joined, crons[0].stretches, crons[0].starts)


# -- several patterns as one ---------------------------------------------------------------------

_DAY = 86_400

#: A progression of local seconds: where it begins, and how far one is from the next.
Steps = tuple[int, int]


class Union:
    """The local times that at least one of the patterns matches."""

    def __init__(self, patterns: Sequence[pattern.Pattern]) -> None:
        self._patterns = tuple(patterns)
        self.per_day = 0
        self.row: tuple[Sequence[int], int] = ((), _DAY)
        self._times = functools.lru_cache(maxsize=64)(
            lambda members: self._joined(members).count(1)
        )

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

    def _joined(self, members: int) -> bytes:
        return _flags_of(self._patterns, members)


@functools.lru_cache(maxsize=64)  # 86 KB each, for all that is kept of a process's expressions
def _flags_of(patterns: tuple[pattern.Pattern, ...], members: int) -> bytes:
    """One byte for each second of the day, 1 where one of these patterns, as bits, matches."""
    flags = bytearray(_DAY)
    for index, each in enumerate(patterns):
        if members >> index & 1:
            each.mark_times(flags)
    return bytes(flags)


# -- a start and an end --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """The slots of ``inner`` in ``[start_us, end_us)``."""

    inner: expression.Expression
    start_us: int
    end_us: int

    def next_after(self, instant_us: int) -> int | None:
        slot_us = self.inner.next_after(max(instant_us, self.start_us - 1))
        return slot_us if slot_us is not None and slot_us < self.end_us else None

    def previous_before(self, instant_us: int) -> int | None:
        slot_us = self.inner.previous_before(min(instant_us, self.end_us))
        return slot_us if slot_us is not None and slot_us >= self.start_us else None

    def count_between(self, after_us: int, through_us: int) -> int:
        first_us, last_us = max(after_us, self.start_us - 1), min(through_us, self.end_us - 1)
        return self.inner.count_between(first_us, last_us) if first_us < last_us else 0

    def describe(self) -> str:
        words = self.inner.describe()
        if self.start_us > expression.FIRST_US:
            words += f", from {expression.utc_text(self.start_us)}"
        if self.end_us <= expression.LAST_US:
            words += f", before {expression.utc_text(self.end_us)}"
        return words


def windowed(
    inner: expression.Expression, *, start_us: int | None, end_us: int | None
) -> expression.Expression:
    """The expression cut to the window; itself when neither end is given."""
    if start_us is None and end_us is None:
        return inner
    return Windowed(
        inner=inner,
        start_us=expression.FIRST_US if start_us is None else start_us,
        end_us=expression.LAST_US + 1 if end_us is None else end_us,
    )
