"""Shares scarce things fairly among owners: places, turns at a receiver, cache memory, connections.

An owner may take places up to three times the number that is free: three quarters of all places
while it is alone, three sevenths beside another owner that wants as many, and so on. No place is
reserved, few are idle, and a newcomer nearly always finds a place at once, because no owner can
take the last free ones. (Dynamic thresholds: Choudhury and Hahne, "Dynamic queue length
thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6, 1998. Owners
that want less than their share get what they want, the others equal parts: max-min fairness.)

``Shares`` only counts. ``FairPlaces`` lets owners wait: a place that comes free goes to the
waiting owner with the fewest places, and among equals to the owner served longest ago.

``Pace`` measures how fast turns come free and says when a delivery that was put off should come
back. A delivery that waits in memory holds a place that others could use, so it waits only if a
turn should come free soon. Deliveries that were put off come back in order, about twice as fast as
turns come free, and further apart the longer no turn has come free. If more came back they would
find no turn, and each one put off again costs a claim and a settlement while other slots
wait. Pure; instants are monotonic seconds.

``BytesCache`` is a cache bounded by bytes and shared fairly among namespaces. Authors decide how
large an entry is, so a limit on the number of entries would not bound memory. While there is room,
every namespace may keep any number. When the cache is full, it evicts the least recently used entry
of the largest namespace: a flood from one namespace evicts its own entries, and never those of a
smaller one. An entry that would fill more than half of the cache is not kept.
"""

from __future__ import annotations

import asyncio
import collections
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

#: An owner may have up to this many times the number of free places.
GREED = 3

OwnerT = TypeVar("OwnerT", bound=Hashable)


class Shares(Generic[OwnerT]):
    """Counts how many places each owner has.

    Args:
        places: number of places for all owners together.
        greed: an owner may have up to this many times the free places; None = only ``places``
            bounds it, for places that soon come free by themselves.
        most: an owner gets no more than this, however many are free.
    """

    def __init__(self, places: int, *, greed: int | None = GREED, most: int | None = None) -> None:
        self._places = places
        self._greed = greed
        self._most = places if most is None else most
        self._held: dict[OwnerT, int] = {}
        self.taken = 0

    def has_room(self, owner: OwnerT) -> bool:
        """Whether this owner may have one more."""
        free, held = self._places - self.taken, self._held.get(owner, 0)
        if self._greed is None:
            return free > 0 and held < self._most
        return held < min(self._greed * free, self._most)

    def held(self, owner: OwnerT) -> int:
        """Return how many places this owner has."""
        return self._held.get(owner, 0)

    def take(self, owner: OwnerT) -> None:
        """Give this owner one more place; call it only if ``has_room``."""
        self._held[owner] = self._held.get(owner, 0) + 1
        self.taken += 1

    def give_back(self, owner: OwnerT) -> None:
        """Free one of this owner's places."""
        left = self._held[owner] - 1
        self.taken -= 1
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]  # or the table would grow with every owner ever seen


class FairPlaces(Generic[OwnerT]):
    """Places that owners can wait for; for one event loop."""

    def __init__(self, places: int, *, greed: int | None = GREED, most: int | None = None) -> None:
        self._shares: Shares[OwnerT] = Shares(places, greed=greed, most=most)
        #: Ordered by when each owner last got a place, longest ago first.
        self._waiting: dict[OwnerT, collections.deque[asyncio.Future[None]]] = {}

    @property
    def taken(self) -> int:
        """The number of places that are taken."""
        return self._shares.taken

    def take(self, owner: OwnerT) -> bool:
        """Take a place if one is free right now, and return whether; its owner must ``leave``."""
        if owner in self._waiting or not self._shares.has_room(owner):
            return False
        self._shares.take(owner)
        return True

    async def wait(self, owner: OwnerT, seconds: float | None = None) -> bool:
        """Wait up to ``seconds`` for a place, and return whether it was taken; None = no limit."""
        if self.take(owner):
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, collections.deque()).append(turn)
        try:
            await asyncio.wait({turn}, timeout=seconds)
        except asyncio.CancelledError:
            if turn.done():
                self.leave(owner)
            else:
                self._forget(owner, turn)
            raise
        if not turn.done():
            self._forget(owner, turn)
        return turn.done()

    def leave(self, owner: OwnerT) -> None:
        """Free a place of this owner, and give it to the next in line."""
        self._shares.give_back(owner)
        while able := [each for each in self._waiting if self._shares.has_room(each)]:
            following = min(able, key=self._shares.held)
            line = self._waiting.pop(following)
            line.popleft().set_result(None)
            if line:
                self._waiting[following] = line
            self._shares.take(following)

    def held(self, owner: OwnerT) -> int:
        """Return how many places this owner has."""
        return self._shares.held(owner)

    def waiting(self, owner: OwnerT) -> int:
        """Return how many of this owner's callers wait."""
        return len(self._waiting.get(owner, ()))

    def _forget(self, owner: OwnerT, turn: asyncio.Future[None]) -> None:
        line = self._waiting[owner]
        line.remove(turn)
        if not line:
            del self._waiting[owner]


#: How long a delivery waits in memory for a turn.
PATIENCE_SECONDS = 0.25
#: While turns keep coming free, a delivery waits if it can expect its turn within this time.
_MOST_PATIENCE_SECONDS = 1.0
#: Bounds of the delay of a delivery that is put off.
LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0
#: Least distance between two deliveries that come back.
_SPACING_SECONDS = 0.001
#: The distance as a part of the interval between free turns; below 1, as some find theirs taken.
_SPACING_OF_INTERVAL = 0.5
#: The distance as a part of the time since a turn last came free, and its upper bound.
_SPACING_OF_STILLNESS = 0.1
_MOST_SPACING_SECONDS = 2.0
#: Weight of the newest interval between two turns that ended.
_WEIGHT = 0.1


@dataclass(slots=True)
class Pace:
    """Measures how fast turns at one receiver, of one namespace, or of all Jobs come free.

    Attributes:
        moved_at: when a turn last came free, or turns became scarce.
    """

    moved_at: float
    _interval: float = 0.0
    _is_first: bool = False
    #: When the last delivery that was put off comes back, by its owner.
    _last_back_at: dict[str, float] = field(default_factory=dict)

    def note_scarce(self, now: float) -> None:
        """Note that turns are scarce from now on."""
        self.moved_at, self._is_first = now, True

    def note_free(self, now: float, *, is_scarce: bool) -> None:
        """Note that a turn came free; while turns are scarce, update their interval."""
        if is_scarce:
            if not self._is_first:  # the first one took as long as an answer, and is no interval
                self._interval += _WEIGHT * (min(now - self.moved_at, 1.0) - self._interval)
            self.moved_at, self._is_first = now, False

    def seconds_to_wait(self, waiting: int, now: float) -> float:
        """Return the expected wait of one more delivery behind ``waiting`` others."""
        stood = now - self.moved_at
        return (stood if stood > PATIENCE_SECONDS else self._interval) * (waiting + 1)

    def patience(self, waiting: int, now: float) -> float:
        """Return how many seconds one more delivery may wait for its turn; 0.0 = put it off.

        While turns keep coming free it may wait longer. To put a delivery off and claim it again
        costs more than a request, and would turn a burst that two cores can carry into a backlog.
        """
        expected = self.seconds_to_wait(waiting, now)
        if now - self.moved_at > PATIENCE_SECONDS or expected > _MOST_PATIENCE_SECONDS:
            return 0.0
        return max(PATIENCE_SECONDS, 2 * expected)

    def put_off(self, now: float, owner: str = "") -> float:
        """Put a delivery off; return after how many seconds it should come back.

        Args:
            owner: each owner has a sequence of its own, so that none delays another.
        """
        stood = now - self.moved_at
        wanted = max(self._interval * _SPACING_OF_INTERVAL, stood * _SPACING_OF_STILLNESS)
        spacing = min(max(wanted, _SPACING_SECONDS), _MOST_SPACING_SECONDS)
        backs = {other: at for other, at in self._last_back_at.items() if at > now}
        seconds = max(backs.get(owner, -math.inf) + spacing - now, LEAST_SECONDS)
        if seconds > MOST_SECONDS:  # start over from the least delay, in between the others
            seconds = LEAST_SECONDS + (seconds - LEAST_SECONDS) % (MOST_SECONDS - LEAST_SECONDS)
        backs[owner] = now + seconds
        self._last_back_at = backs
        return seconds


KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


def first_to_go(
    kept: Mapping[KeyT, ValueT], owner: Callable[[ValueT], str], is_idle: Callable[[ValueT], bool]
) -> KeyT | None:
    """Return the entry to evict: the first idle one of the owners with the most, or None."""
    counts = collections.Counter(map(owner, kept.values()))
    most = max(counts.values())
    return next(
        (key for key, each in kept.items() if counts[owner(each)] == most and is_idle(each)), None
    )


class BytesCache(Generic[KeyT, ValueT]):
    """A cache of values by namespace and key, bounded by bytes.

    Attributes:
        size: bytes of all entries, as reported by the callers of ``put``.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: dict[str, OrderedDict[KeyT, tuple[ValueT, int]]] = {}
        self._sizes: dict[str, int] = {}
        self.size = 0

    def get(self, namespace: str, key: KeyT) -> ValueT | None:
        """Return the cached value, or None; it becomes the most recently used."""
        entries = self._kept.get(namespace)
        found = None if entries is None else entries.get(key)
        if entries is None or found is None:
            return None
        entries.move_to_end(key)
        return found[0]

    def items(self, namespace: str) -> list[tuple[KeyT, ValueT]]:
        """Return all entries of a namespace."""
        return [(key, value) for key, (value, _) in self._kept.get(namespace, {}).items()]

    def put(self, namespace: str, key: KeyT, value: ValueT, size: int) -> None:
        """Cache a value of ``size`` bytes, in place of the key's former one."""
        self.drop(namespace, key)
        if size > self._most // 2:
            return
        self._kept.setdefault(namespace, OrderedDict())[key] = value, size
        self._grow(namespace, size)
        while self.size > self._most:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.drop(largest, next(iter(self._kept[largest])))

    def drop(self, namespace: str, key: KeyT) -> None:
        """Remove an entry, if it is cached."""
        entries = self._kept.get(namespace)
        gone = None if entries is None else entries.pop(key, None)
        if gone is None:
            return
        self._grow(namespace, -gone[1])
        if not entries:
            del self._kept[namespace], self._sizes[namespace]

    def drop_all(self, namespace: str) -> None:
        """Remove all entries of a namespace."""
        self._kept.pop(namespace, None)
        self.size -= self._sizes.pop(namespace, 0)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def _grow(self, namespace: str, size: int) -> None:
        self._sizes[namespace] = self._sizes.get(namespace, 0) + size
        self.size += size


# -- places of connections -------------------------------------------------------------------------

#: Prefix length of an IPv6 network whose addresses all belong to one site (RFC 6177).
_NETWORK_V6 = 64


class PlacedConnection(Protocol):
    """A connection that takes up a place."""

    @property
    def is_idle(self) -> bool:
        """Whether the connection may be closed to make room for another one."""
        ...

    def give_way(self) -> None:
        """Close at once, and leave the place."""
        ...


PlacedT = TypeVar("PlacedT", bound=PlacedConnection)


class ConnectionPlaces(Generic[PlacedT]):
    """The connections of a server, shared fairly among the addresses that they come from.

    A full server accepts one more from an address with few connections by closing an idle one of
    the address with the most. So idle connections can only keep others out if they come from as
    many networks as there are places. Connections are kept by owner, oldest first.
    """

    def __init__(self, places: int) -> None:
        self._shares: Shares[str] = Shares(places)
        self._held: dict[str, dict[PlacedT, None]] = {}
        self._owners: dict[PlacedT, str] = {}

    def enter(self, owner: str, place: PlacedT) -> bool:
        """Give the connection a place if it can have one, and return whether; it must ``leave``."""
        if not self._shares.has_room(owner) and not self._make_room(owner):
            return False
        self._shares.take(owner)
        self._held.setdefault(owner, {})[place] = None
        self._owners[place] = owner
        return True

    def leave(self, place: PlacedT) -> None:
        """Free the place of a connection, if it had one."""
        owner = self._owners.pop(place, None)
        if owner is None:
            return
        self._shares.give_back(owner)
        held = self._held[owner]
        del held[place]
        if not held:
            del self._held[owner]

    def _make_room(self, owner: str) -> bool:
        """Close the oldest idle connection of an owner with more, the one with the most first."""
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
    """Return the owner that a connection counts for: its IPv4 address, or its IPv6 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _NETWORK_V6), strict=False))
