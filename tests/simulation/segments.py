"""Wishes of one object with the same timing; for the judges of simulated and of real histories."""

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
    """What a user wanted; ``spec`` None = that the object is gone."""

    @property
    def at_us(self) -> int: ...

    @property
    def spec(self) -> Mapping[str, Any] | None: ...


WishT = TypeVar("WishT", bound=Wish)


@dataclass(frozen=True, slots=True)
class Segment(Generic[WishT]):
    """Wishes with the same timing; where changes are not answered, nobody knows until when.

    Attributes:
        begin_us, latest_begin_us: it was current from some instant between these on.
        end_us, latest_end_us: and up to some instant between these.
    """

    wishes: Sequence[WishT]
    begin_us: int
    latest_begin_us: int
    end_us: int
    latest_end_us: int

    @property
    def spec(self) -> Mapping[str, Any]:
        """The newest of them; the timing is that of all."""
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
    """Of one object, in order.

    Args:
        begun_by: until when a wish has begun to hold, and whether it is the object's first.
        seen_by: until when a wish is certainly seen.
    """

    def timing(wish: WishT) -> object:
        if wish.spec is None:
            return None
        is_suspended = bool(wish.spec.get("suspend"))  # false says the same as nothing
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
