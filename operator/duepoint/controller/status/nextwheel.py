"""When the NEXT of each written status is past.

Mostly a slot that fires is told of, and its status is written with the slot after it. Where nothing
is told (the slot waits for others to end, its request is open, its receiver cannot be reached)
NEXT would stay in the past. So the uids are kept by the seconds in which their NEXT is past, a few
bytes for each and once in each place, and are handed out then. A uid whose status was written
meanwhile stands elsewhere too; that its former place is old is seen when it is handed out. Nothing
is asked of anybody. Mutable; instants in microseconds since the epoch.
"""

from __future__ import annotations

import heapq

#: Uids of so long a time share a place.
_WIDTH_US = 500_000


class NextWheel:
    """Uids by when to look at them."""

    def __init__(self) -> None:
        self._places: dict[int, dict[str, None]] = {}
        self._order: list[int] = []

    def put(self, uid: str, at_us: int) -> bool:
        """The uid is to be handed out then; True where it is the soonest now."""
        place = -(-at_us // _WIDTH_US)
        if place not in self._places:
            self._places[place] = {}
            heapq.heappush(self._order, place)
        self._places[place][uid] = None
        return self._order[0] == place

    def next_us(self) -> int | None:
        """When the soonest is to be handed out."""
        return self._order[0] * _WIDTH_US if self._order else None

    def take(self, now_us: int) -> list[str]:
        """Every uid whose time has come; none is kept."""
        taken: list[str] = []
        while self._order and self._order[0] * _WIDTH_US <= now_us:
            taken += self._places.pop(heapq.heappop(self._order))
        return taken
