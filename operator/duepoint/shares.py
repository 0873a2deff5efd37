"""Places of which several owners want some: who may have another one.

An owner may have three times what is free: three quarters of the places while it is alone, three
sevenths of them beside another one that wants as many, and so on. So nothing is reserved by name,
little lies idle, and a newcomer nearly always finds a place at once, because no owner may ever take
the last part of what is left. (Dynamic thresholds: Choudhury and Hahne, "Dynamic queue length
thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6, 1998. What
owners get that want less is what they want, the others get equal parts: max-min fairness.)

``Shares`` only counts. ``FairPlaces`` lets owners wait: a place that comes free goes to the
waiting owner with the fewest, and among equals to the owner served longest ago.

``Pace`` knows how fast turns come free where some wait for them, and when what was put off is to
come back. What waits in memory holds something that others could use, so a turn is waited for only
where one is to be had soon. What is put off comes back in order, about twice as fast as turns come
free, and further apart the longer none has: more of them would find no turn, and each that comes
back and is put off again costs a claim and a settlement, for which other slots wait. Pure; instants
are monotonic seconds.

``BytesCache`` keeps what may be used again, bounded by bytes, with a share for each namespace:
entries are as large as their authors make them, so a bound of their number bounds nothing. While
there is room every namespace keeps what it likes. When there is none, the longest unused entry of
the namespace that holds the most goes: a flood of one namespace pushes out its own entries, and
never those of a namespace that holds less. An entry that would fill more than half is not kept.
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

#: An owner may have so many times what is free.
GREED = 3

OwnerT = TypeVar("OwnerT", bound=Hashable)


class Shares(Generic[OwnerT]):
    """Counts who has how many places.

    Args:
        places: of all owners together.
        greed: what is free may be had so many times over by one owner; None = no bound but
            ``places``, for places that all come free by themselves in a moment.
        most: an owner has no more than this, however many are free.
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
        """How many this owner has."""
        return self._held.get(owner, 0)

    def take(self, owner: OwnerT) -> None:
        """One more is this owner's; ``has_room`` said so."""
        self._held[owner] = self._held.get(owner, 0) + 1
        self.taken += 1

    def give_back(self, owner: OwnerT) -> None:
        """One of this owner's is free again."""
        left = self._held[owner] - 1
        self.taken -= 1
        if left:
            self._held[owner] = left
        else:
            del self._held[owner]  # nothing is kept of an owner that has nothing


class FairPlaces(Generic[OwnerT]):
    """Places that are waited for; for one event loop."""

    def __init__(self, places: int, *, greed: int | None = GREED, most: int | None = None) -> None:
        self._shares: Shares[OwnerT] = Shares(places, greed=greed, most=most)
        #: In the order in which owners got a place last.
        self._waiting: dict[OwnerT, collections.deque[asyncio.Future[None]]] = {}

    @property
    def taken(self) -> int:
        """Places that somebody has."""
        return self._shares.taken

    def take(self, owner: OwnerT) -> bool:
        """Whether there is a place right now; then it is the owner's, who must ``leave``."""
        if owner in self._waiting or not self._shares.has_room(owner):
            return False
        self._shares.take(owner)
        return True

    async def wait(self, owner: OwnerT, seconds: float | None = None) -> bool:
        """Whether a place was had within so many seconds; None waits as long as it takes."""
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
        """A place is free again."""
        self._shares.give_back(owner)
        while able := [each for each in self._waiting if self._shares.has_room(each)]:
            following = min(able, key=self._shares.held)
            line = self._waiting.pop(following)
            line.popleft().set_result(None)
            if line:
                self._waiting[following] = line
            self._shares.take(following)

    def held(self, owner: OwnerT) -> int:
        """Places that this owner has."""
        return self._shares.held(owner)

    def waiting(self, owner: OwnerT) -> int:
        """How many of this owner wait."""
        return len(self._waiting.get(owner, ()))

    def _forget(self, owner: OwnerT, turn: asyncio.Future[None]) -> None:
        line = self._waiting[owner]
        line.remove(turn)
        if not line:
            del self._waiting[owner]


#: A turn is waited for in memory for about so long.
PATIENCE_SECONDS = 0.25
#: And while turns keep coming free, as long as this is expected to be enough.
_MOST_PATIENCE_SECONDS = 1.0
#: Bounds of what a delivery is put off by.
LEAST_SECONDS, MOST_SECONDS = 0.2, 30.0
#: So far from one another do those come back that were put off, at least.
_SPACING_SECONDS = 0.001
#: And as a part of the interval at which turns come free: some come back to a turn that is taken.
_SPACING_OF_INTERVAL = 0.5
#: The longer no turn has come free, the further apart, up to this.
_SPACING_OF_STILLNESS = 0.1
_MOST_SPACING_SECONDS = 2.0
#: Weight of the newest interval between two turns that ended.
_WEIGHT = 0.1


@dataclass(slots=True)
class Pace:
    """Of the turns of one receiver, of one namespace, or of all Jobs.

    Attributes:
        moved_at: when a turn came free last, or turns became scarce.
    """

    moved_at: float
    _interval: float = 0.0
    #: By owner of what waits, when the last that was put off comes back.
    _last_back_at: dict[str, float] = field(default_factory=dict)

    def note_free(self, now: float, *, is_scarce: bool) -> None:
        """A turn has come free; where turns are scarce, how fast they do is recorded."""
        if is_scarce:
            self._interval += _WEIGHT * (min(now - self.moved_at, 1.0) - self._interval)
            self.moved_at = now

    def seconds_to_wait(self, waiting: int, now: float) -> float:
        """How long one more would wait behind so many others, as it looks now."""
        stood = now - self.moved_at
        return (stood if stood > PATIENCE_SECONDS else self._interval) * (waiting + 1)

    def patience(self, waiting: int, now: float) -> float:
        """Seconds that one more may wait for its turn behind so many others; 0.0 = it is put off.

        While turns keep coming free it waits for longer: to put off and claim again costs more than
        a request does, and with them a burst that two cores could carry grows.
        """
        expected = self.seconds_to_wait(waiting, now)
        if now - self.moved_at > PATIENCE_SECONDS or expected > _MOST_PATIENCE_SECONDS:
            return 0.0
        return max(PATIENCE_SECONDS, 2 * expected)

    def put_off(self, now: float, owner: str = "") -> float:
        """Seconds after which the next one that gets no turn is to come back.

        Args:
            owner: what one owner has put off does not put off another's.
        """
        stood = now - self.moved_at
        wanted = max(self._interval * _SPACING_OF_INTERVAL, stood * _SPACING_OF_STILLNESS)
        spacing = min(max(wanted, _SPACING_SECONDS), _MOST_SPACING_SECONDS)
        backs = {other: at for other, at in self._last_back_at.items() if at > now}
        seconds = max(backs.get(owner, -math.inf) + spacing - now, LEAST_SECONDS)
        if seconds > MOST_SECONDS:  # the order begins anew, between those that are expected
            seconds = LEAST_SECONDS + (seconds - LEAST_SECONDS) % (MOST_SECONDS - LEAST_SECONDS)
        backs[owner] = now + seconds
        self._last_back_at = backs
        return seconds


KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


def first_to_go(
    kept: Mapping[KeyT, ValueT], owner: Callable[[ValueT], str], is_idle: Callable[[ValueT], bool]
) -> KeyT | None:
    """Of too many that are kept: the first idle one of the owner that has most; None = none is."""
    counts = collections.Counter(map(owner, kept.values()))
    most = max(counts.values())
    return next(
        (key for key, each in kept.items() if counts[owner(each)] == most and is_idle(each)), None
    )


class BytesCache(Generic[KeyT, ValueT]):
    """Values by namespace and key.

    Attributes:
        size: bytes of all that is kept, as those who put it said.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._kept: dict[str, OrderedDict[KeyT, tuple[ValueT, int]]] = {}
        self._sizes: dict[str, int] = {}
        self.size = 0

    def get(self, namespace: str, key: KeyT) -> ValueT | None:
        """What is kept; it counts as used just now."""
        entries = self._kept.get(namespace)
        found = None if entries is None else entries.get(key)
        if entries is None or found is None:
            return None
        entries.move_to_end(key)
        return found[0]

    def items(self, namespace: str) -> list[tuple[KeyT, ValueT]]:
        """All that is kept of it."""
        return [(key, value) for key, (value, _) in self._kept.get(namespace, {}).items()]

    def put(self, namespace: str, key: KeyT, value: ValueT, size: int) -> None:
        """Keep it, so many bytes, in place of what the key had."""
        self.drop(namespace, key)
        if size > self._most // 2:
            return
        self._kept.setdefault(namespace, OrderedDict())[key] = value, size
        self._grow(namespace, size)
        while self.size > self._most:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.drop(largest, next(iter(self._kept[largest])))

    def drop(self, namespace: str, key: KeyT) -> None:
        """Keep it no longer, if it is."""
        entries = self._kept.get(namespace)
        gone = None if entries is None else entries.pop(key, None)
        if gone is None:
            return
        self._grow(namespace, -gone[1])
        if not entries:
            del self._kept[namespace], self._sizes[namespace]

    def drop_all(self, namespace: str) -> None:
        """Keep nothing of it any longer."""
        self._kept.pop(namespace, None)
        self.size -= self._sizes.pop(namespace, 0)

    def __len__(self) -> int:
        return sum(map(len, self._kept.values()))

    def _grow(self, namespace: str, size: int) -> None:
        self._sizes[namespace] = self._sizes.get(namespace, 0) + size
        self.size += size


# -- places of connections -------------------------------------------------------------------------

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
    """Connections by their owners, oldest first: each address has its share of a server's.

    A server that is full takes one more of an address that has few by closing an idle one of the
    address that has most: connections that ask for nothing keep others out only where they come
    from as many networks as there are places.
    """

    def __init__(self, places: int) -> None:
        self._shares: Shares[str] = Shares(places)
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
