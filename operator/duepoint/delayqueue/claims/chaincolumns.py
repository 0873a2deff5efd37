"""The points of a claim that holds nothing but chains, kept as columns.

A worker that empties a burst claims hundreds of points at a time, and a value object for each
would cost more than all other work on it. So the members and dues stay as they came, oldest due
first. A caller that wants points indexes or iterates, and gets the same ones as from a tuple.
Pure, and immutable by convention: no caller writes to the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from duepoint.schedules import points

_ID_LENGTH = 8


class ClaimedChains(Sequence[points.DuePoint]):
    """Chain points by column; equal to any sequence of equal points.

    Attributes:
        members: stored members (id, timing version).
        dues: their dues in microseconds, in the same order.
    """

    __slots__ = ("_dues", "_made", "_scores", "members")

    def __init__(self, members: list[bytes], scores: list[float]) -> None:
        self.members = members
        self._scores = scores
        self._dues: list[int] | None = None
        self._made: tuple[points.DuePoint, ...] | None = None

    @property
    def dues(self) -> list[int]:
        """The dues, converted on first use: a claim that is finished whole never needs them."""
        if self._dues is None:
            self._dues = list(map(int, self._scores))
        return self._dues

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[points.DuePoint]:
        return iter(self._points())

    @overload
    def __getitem__(self, index: int) -> points.DuePoint: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[points.DuePoint, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._points()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._points() == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._points())

    def ids(self) -> list[points.ScheduleId]:
        """Return the ids of the schedules, in the order of the points."""
        return [points.ScheduleId(member[:_ID_LENGTH]) for member in self.members]

    def _points(self) -> tuple[points.DuePoint, ...]:
        if self._made is None:
            self._made = tuple(map(chain_of, self.members, self.dues))
        return self._made


def chain_of(member: bytes, due_us: int) -> points.DuePoint:
    """Return the point of one row."""
    return points.chain(
        points.ScheduleId(member[:_ID_LENGTH]), points.TimingVersion(member[_ID_LENGTH:]), due_us
    )


def of(claimed: Sequence[points.DuePoint]) -> ClaimedChains | None:
    """Return the points by column; None unless all are chains."""
    if isinstance(claimed, ClaimedChains):
        return claimed
    if any(point.kind is not points.PointKind.CHAIN for point in claimed):
        return None
    return ClaimedChains(
        [point.member for point in claimed], [float(point.due_us) for point in claimed]
    )


def from_lanes(found: Mapping[str, Sequence[bytes]]) -> ClaimedChains | None:
    """Return the claim's points out of {lane: [member, due, ...]}; None unless all are chains."""
    members: list[bytes] = []
    scores: list[bytes] = []  # as texts
    for listed in found.values():
        members += listed[::2]
        scores += listed[1::2]
    if set(map(len, members)) != {points.CHAIN_LENGTH}:
        return None
    try:
        dues = list(map(float, scores))
    except ValueError:
        return None
    if not 0 <= min(dues) <= max(dues) < points.DUE_LIMIT_US:
        return None
    if len(found) > 1 and min(dues) < max(dues):  # each lane is sorted by due already
        order = sorted(range(len(dues)), key=dues.__getitem__)
        members, dues = [members[n] for n in order], [dues[n] for n in order]
    return ClaimedChains(members, dues)
