"""Which connections of a server have a place: each address has its share of them.

``duepoint.shares`` says how large a share is. A server that is full takes one more of an address
that has few by closing an idle one of the address that has most: connections that ask for nothing
keep others out only where they come from as many networks as there are places.
"""

from __future__ import annotations

import ipaddress
from typing import Generic, Protocol, TypeVar

from duepoint import shares

#: Whoever has one address of such a network has all of them (RFC 6177).
_NETWORK_V6 = 64


class PlacedConnection(Protocol):
    """What holds a place."""

    @property
    def is_idle(self) -> bool:
        """Whether it may be closed for another one."""
        ...

    def give_way(self) -> None:
        """Close at once, and leave."""
        ...


PlacedT = TypeVar("PlacedT", bound=PlacedConnection)


class ConnectionPlaces(Generic[PlacedT]):
    """Connections by their owners, oldest first."""

    def __init__(self, places: int) -> None:
        self._shares: shares.Shares[str] = shares.Shares(places)
        self._held: dict[str, dict[PlacedT, None]] = {}
        self._owners: dict[PlacedT, str] = {}

    def enter(self, owner: str, place: PlacedT) -> bool:
        """Whether there is a place for one more of this owner; it is to ``leave``."""
        if not self._shares.has_room(owner) and not self._make_room(owner):
            return False
        self._shares.take(owner)
        self._held.setdefault(owner, {})[place] = None
        self._owners[place] = owner
        return True

    def leave(self, place: PlacedT) -> None:
        """Its place is free again, if it had one."""
        owner = self._owners.pop(place, None)
        if owner is None:
            return
        self._shares.give_back(owner)
        held = self._held[owner]
        del held[place]
        if not held:
            del self._held[owner]

    def _make_room(self, owner: str) -> bool:
        """Close the oldest idle connection of the owner who has most, if that is another one."""
        held, own = self._held, self._shares.held(owner)
        for other in sorted(held, key=lambda each: len(held[each]), reverse=True):
            if len(held[other]) <= own + 1:
                return False
            idle = next((each for each in held[other] if each.is_idle), None)
            if idle is not None:
                idle.give_way()
                return True
        return False


def owner_of(address: str) -> str:
    """Who is behind an address: itself, and of IPv6 the network of its owner."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _NETWORK_V6), strict=False))
