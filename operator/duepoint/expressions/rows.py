"""How many slots several cron expressions of one zone have together, and how many on a period.

Expressions with the same daylight-saving behaviour share a row of stretches (dst.py); in one zone
there are few such rows, and all change at the same instants. Between two changes a row counts the
local times of its window. So each stretch is cut where a window begins or ends; in each piece the
patterns of the rows that count there are joined (union.py), and days are counted, not slots. The
first instant of a stretch, where it stands in for missing times, is looked at by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from duepoint.expressions import cron, every, expression, progression, union, zoned

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
        self._unions: dict[int, union.Union] = {}
        self.rows: tuple[zoned.Zoned, ...] = tuple(_joined(group) for group in self._groups)

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
        met = (progression.meeting(period, _WHOLE_SECONDS) for period in periods)
        whole = progression.without_repeats([period for period in met if period is not None])
        signed = progression.signed_meetings(whole, after_us, through_us, most=_MOST_MEETINGS)
        if signed is None:
            return self._marked(whole, after_us, through_us)
        return sum(
            sign * self._count_on_one(period, after_us, through_us)
            for period, sign in signed.items()
        )

    def _count_on_one(self, period: every.Every, after_us: int, through_us: int) -> int:
        if period.count_between(after_us, through_us) <= _FEW:
            return self._looked_up(period, after_us, through_us)
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

    def _looked_up(self, period: every.Every, after_us: int, through_us: int) -> int:
        count, slot_us = 0, period.next_after(after_us)
        while slot_us is not None and slot_us <= through_us:
            count += self.has(slot_us)
            slot_us = period.next_after(slot_us)
        return count

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

    def _union(self, members: int) -> union.Union:
        found = self._unions.get(members)
        if found is None:
            groups = (group for row, group in enumerate(self._groups) if members >> row & 1)
            patterns = [each.pattern for group in groups for each in group]
            found = self._unions[members] = union.Union(patterns)
        return found


def _joined(crons: Sequence[cron.Cron]) -> zoned.Zoned:
    if len(crons) == 1:
        return crons[0]
    joined = union.Union([each.pattern for each in crons])
    return zoned.Zoned(joined, crons[0].stretches, crons[0].starts)
