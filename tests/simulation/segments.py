"""Segments, wishes of one object with the same timing; judges of all histories use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

FAR_US = 2**60
_TIMING = (
    "schedule",
    "schedules",
    "timeZone",
    "dst",
    "jitter",
    "startTime",
    "endTime",
    "suspendUntil",
)


class Wish(Protocol):
    """What a user wanted; ``spec`` None = the object is to be gone."""

    @property
    def at_us(self) -> int: ...

    @property
    def spec(self) -> Mapping[str, Any] | None: ...


WishT = TypeVar("WishT", bound=Wish)


@dataclass(frozen=True, slots=True)
class Segment(Generic[WishT]):
    """Consecutive wishes with the same timing; its bounds are uncertain if changes got no answer.

    Attributes:
        begin_us, latest_begin_us: it became current at some instant between these.
        end_us, latest_end_us: it ceased to be current at some instant between these.
    """

    wishes: Sequence[WishT]
    begin_us: int
    latest_begin_us: int
    end_us: int
    latest_end_us: int

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return the newest spec, whose timing is that of all."""
        spec = self.wishes[-1].spec
        assert spec is not None
        return spec

    @property
    def runs(self) -> bool:
        return not self.spec.get("suspend")


def segments(
    wishes: Sequence[WishT],
    *,
    is_job: Callable[[WishT], bool],
    begun_by: Callable[[WishT, bool], int],
    seen_by: Callable[[WishT], int],
) -> list[Segment[WishT]]:
    """Return the segments of one object, in order.

    Args:
        begun_by: returns by when a wish took effect; it is told whether the wish is the first.
        seen_by: returns by when the operator has certainly seen a wish.
    """

    def timing(wish: WishT) -> object:
        if wish.spec is None:
            return None
        is_suspended = bool(wish.spec.get("suspend"))  # false means the same as absent
        return (is_job(wish), is_suspended, *(repr(wish.spec.get(name)) for name in _TIMING))

    groups: list[list[WishT]] = []
    for wish in wishes:
        if groups and timing(groups[-1][-1]) == timing(wish):
            groups[-1].append(wish)
        else:
            groups.append([wish])
    found = []
    for place, group in enumerate(groups):
        if group[0].spec is None:
            continue
        following = groups[place + 1][0] if place + 1 < len(groups) else None
        found.append(
            Segment(
                wishes=group,
                begin_us=group[0].at_us,
                latest_begin_us=begun_by(group[0], place == 0),
                end_us=following.at_us if following else FAR_US,
                latest_end_us=seen_by(following) if following else FAR_US,
            )
        )
    return found
