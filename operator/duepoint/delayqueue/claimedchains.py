"""The points of a claim that brought nothing but chains, kept as columns.

A worker that empties a burst claims hundreds of points at a time, and a value object for each
would cost more than everything else that happens to it. So the members and dues stay as they came,
oldest due first; who wants points indexes or iterates and gets the same ones as from a tuple.
Pure, and immutable by custom: nobody writes to the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from duepoint.schedules import points

_ID_LENGTH = 8


class ClaimedChains(Sequence[points.DuePoint]):
    """Chain points by column; equal to any sequence of equal points.

    Attributes:
        members: stored members (id, timing version).
        dues: their dues in microseconds, in the same order.
    """

    __slots__ = ("_made", "dues", "members")

    def __init__(self, members: list[bytes], dues: list[int]) -> None:
        self.members = members
        self.dues = dues
        self._made: tuple[points.DuePoint, ...] | None = None

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
        """The schedules, in the order of the points."""
        return [points.ScheduleId(member[:_ID_LENGTH]) for member in self.members]

    def _points(self) -> tuple[points.DuePoint, ...]:
        if self._made is None:
            self._made = tuple(map(chain_of, self.members, self.dues))
        return self._made


def chain_of(member: bytes, due_us: int) -> points.DuePoint:
    """The point of one row."""
    return points.chain(
        points.ScheduleId(member[:_ID_LENGTH]), points.TimingVersion(member[_ID_LENGTH:]), due_us
    )


def from_lanes(found_by_lane: list[Any]) -> ClaimedChains | None:
    """The claim's points out of {lane, {member, due, ...}, ...}; None where not all are chains."""
    members: list[bytes] = []
    scores: list[bytes] = []
    for found in found_by_lane[1::2]:
        members += found[::2]
        scores += found[1::2]
    if any(len(member) != points.CHAIN_LENGTH for member in members):
        return None
    try:
        dues = list(map(int, map(float, scores)))
    except (ValueError, OverflowError):  # not a number, or none that stands for a time
        return None
    if not dues or min(dues) < 0:
        return None
    if len(found_by_lane) > 2:  # one lane's own order is that of its dues
        order = sorted(range(len(dues)), key=dues.__getitem__)
        members, dues = [members[n] for n in order], [dues[n] for n in order]
    return ClaimedChains(members, dues)
