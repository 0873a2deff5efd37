"""What a worker may have in hand: how much it claims next, and where an attempt waits.

What one worker holds no other can fire, so it holds some times what it can try at a time, and no
more (``Room``). Shards that are due get a ``PART`` of what is free each; those that had more than
the last claim could take get all of it as far as there is room, because a claim of one point costs
as much as one of hundreds. Shards of the namespaces with the fewest points in hand come first, and
where nothing is free, namespaces with less than a part in hand get one all the same: the burst of
one namespace keeps no other waiting.

An attempt waits by its kind, and no kind waits behind another (``AttemptPlaces``). A Job has a
connection to the API server for a moment (``JobPlaces``): those come free by themselves, so they
have no reserve and only the order is fair. A webhook, or a record for another server, may take its
whole time limit (``targets.places``), and what gets no place soon is put off; so is a Job while the
API server is slow, and a large Job that finds all places for such taken. What a check reads it
reads at the API server, in places of its own. Entries of streams in our own Redis are parts of a
few scripts and wait for nothing.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from duepoint import clock as clocks
from duepoint import shares
from duepoint.delayqueue import messages, sharding
from duepoint.kube import transport
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import places as receiverplaces
from duepoint.worker.plan import ActionUnreadable

#: Points of one claim of a shard of which it is not known that more are due.
PART = 16
#: A shard with more waits until this part of the room is free.
_ENOUGH_OF_ROOM = 1 / 8
#: For namespaces with few points in hand a worker takes so many more than it should hold.
_BEYOND = 128


#: Shards to claim from, with the most points of each.
Asks = list[tuple[Sequence[messages.ShardId], int]]


class Room:
    """Counts what is in hand.

    Args:
        most: points that should be in hand.
        batch: most points in one claim.

    Attributes:
        in_hand: points, by the namespaces that their shards hold (``sharding.namespaces_of``).
        more: how many points were due in each shard beside those of its last claim.
    """

    def __init__(self, jobs: JobPlaces, *, most: int, batch: int) -> None:
        self._jobs = jobs
        self._most = most
        self._batch = batch
        self._part = max(1, min(PART, most // PART, batch))
        self.in_hand: collections.Counter[int] = collections.Counter()
        self.more: dict[messages.ShardId, int] = {}

    def has_enough(self) -> bool:
        """Whether there is room for any shard."""
        return self._free() >= self._enough()

    def asks(self, due: Sequence[messages.ShardId]) -> tuple[Asks, Sequence[messages.ShardId]]:
        """What to claim of the shards that are due, and those that have to wait for room."""
        free, enough = self._free(), self._enough()
        beyond = min(0, self._most - self.in_hand.total()) + _BEYOND
        asked: dict[int, list[messages.ShardId]] = {}
        later: list[messages.ShardId] = []
        for shard in sorted(due, key=self._in_hand_beside):
            size = min(self._batch, max(self._part, self.more.get(shard, 0)))
            if free >= min(size, enough):
                size = min(size, free)
                free -= size
            elif beyond >= self._part and self._in_hand_beside(shard) < self._part:
                size = self._part
                beyond -= size
            else:
                later.append(shard)
                continue
            asked.setdefault(size, []).append(shard)
        return [(shards, size) for size, shards in asked.items()], later

    def hold(self, claim: messages.Claim, on_change: Callable[[], None]) -> Holding:
        """Count the points of a claim among those in hand.

        Args:
            on_change: called when fewer are in hand, or when fewer may be Jobs.
        """
        size = max(1, len(claim.points) + len(claim.unknown_members))
        group = sharding.namespaces_of(claim.shard)
        self.in_hand[group] += size
        self._jobs.unknown += size
        return Holding(
            room=self, jobs=self._jobs, on_change=on_change, group=group, left=size, unknown=size
        )

    def _free(self) -> int:
        return max(0, self._jobs.room(self._most - self.in_hand.total()))

    def _enough(self) -> int:
        return max(self._part, int(self._jobs.limit(self._most) * _ENOUGH_OF_ROOM))

    def _in_hand_beside(self, shard: messages.ShardId) -> int:
        """Points in hand of the namespaces that this shard holds."""
        return self.in_hand[sharding.namespaces_of(shard)]


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """The points of one claim that are still in hand.

    Attributes:
        group: the namespaces of their shard, as ``Room.in_hand`` has them.
        left: how many there are.
        unknown: how many ``jobs`` counts among those that may be Jobs.
    """

    room: Room
    jobs: JobPlaces
    on_change: Callable[[], None]
    group: int
    left: int
    unknown: int

    def ended(self, points: int) -> None:
        """So many more have ended."""
        points = min(points, self.left)
        self.left -= points
        self.room.in_hand[self.group] -= points
        self.on_change()

    def begun(self, points: int) -> None:
        """So many have begun: those that are Jobs stand in the line now."""
        points = min(points, self.unknown)
        self.unknown -= points
        self.jobs.unknown -= points

    def kinds_known(self) -> None:
        """Those among them that are Jobs stand in the line; what is no Job leaves room."""
        self.begun(self.unknown)
        self.on_change()

    def close(self) -> None:
        """None of them is in hand any more."""
        self.kinds_known()
        self.ended(self.left)


# -- where an attempt waits -----------------------------------------------------------------------

#: Checks at a time; several objects are read for each.
_CHECKS = 32
_SECOND_US = 1_000_000
_LEAST_US = _SECOND_US // 10

#: The place of what is not tried.
_NOWHERE = contextlib.nullcontext(0.0)

#: Jobs in hand for each connection: the one under way and three that follow at once.
_IN_HAND = 4
#: Room for a claim that comes free within this is waited for: a claim of a few points costs as
#: much as dozens of them.
_SOON_SECONDS = 0.05

#: Large Jobs that are created at a time; no namespace has all of these places.
_LARGE_PLACES = 4


class AttemptPlaces:
    """Of one worker. As context managers; what they give are seconds: above 0 there is no place.

    Args:
        most: attempts of a kind at a time.
    """

    def __init__(self, clock: clocks.Clock, most: int, jobs: JobPlaces) -> None:
        self.jobs = jobs
        self._checks: shares.FairPlaces[str] = shares.FairPlaces(_CHECKS, greed=None)
        self._receivers = receiverplaces.ReceiverPlaces(clock, most)

    def of(
        self, namespace: str, outline: actions.Action | ActionUnreadable
    ) -> contextlib.AbstractAsyncContextManager[float]:
        """Where an attempt at this action waits before its time begins."""
        if isinstance(outline, ActionUnreadable):
            return _NOWHERE  # nothing is tried
        if not isinstance(outline.target, actions.JobAction):
            return self._receivers.turn(namespace)
        return self.jobs.turn(namespace, is_large=outline.target.is_large)

    @contextlib.asynccontextmanager
    async def of_check(self, namespace: str) -> AsyncIterator[float]:
        """For a look at what a definition refers to."""
        await self._checks.wait(namespace)
        try:
            yield 0.0
        finally:
            self._checks.leave(namespace)


def put_off(seconds: float, namespace: str, *, is_job: bool, left_us: int) -> outcome.Retry:
    """What becomes of an attempt without a place: it was none, and uses none up.

    Args:
        left_us: until the slot is given up; the last look falls just inside.
    """
    message = (
        f"the API server is slow, and namespace {namespace} has as many Jobs under way as it may "
        "have at one worker; the Job waits"
        if is_job
        else f"namespace {namespace} has as many requests to receivers open as it may have at one "
        "worker; the delivery waits"
    )
    return outcome.Retry(
        reason=Reason.RECEIVER_BUSY,
        message=message,
        after_us=max(min(int(seconds * _SECOND_US), left_us - _SECOND_US), _LEAST_US),
        started=False,
        counted=False,
    )


class JobPlaces:
    """Where Jobs wait for a connection to the API server; ``turn`` is around each attempt.

    A Job's attempt begins when it has a connection: waiting inside the attempt would use up its
    time, end it when it had hardly begun, and have the Job asked for a second time. What waits here
    is held by this worker and by no other, so a worker that makes Jobs takes only as many as keep
    its connections busy for the moment: of a burst of thousands, all workers then end at the same
    time. A connection that comes free goes to the namespace that has the fewest, so a burst of one
    namespace keeps no other waiting.

    While the API server is slow, or does not answer, the waiting Jobs must not keep webhooks and
    streams from being claimed: then a worker goes on claiming, a few points at a time, and the Jobs
    among them that find enough others before them are put off.

    Attributes:
        length: attempts that wait or are under way.
        unknown: claimed points of which is not known yet whether they are Jobs.
    """

    def __init__(self, clock: clocks.Clock, places: int = transport.REQUEST_CONNECTIONS) -> None:
        self._clock = clock
        # A creation ends by itself in a moment: no reserve is needed, only the order.
        self._places: shares.FairPlaces[str] = shares.FairPlaces(places, greed=None)
        self._large = receiverplaces.ReceiverPlaces(clock, _LARGE_PLACES)
        self._pace = shares.Pace(clock.monotonic())
        self._in_hand = _IN_HAND * places
        self._least = places
        self._makes_jobs = False
        self.length = 0
        self.unknown = 0

    def limit(self, usual: int) -> int:
        """Points that should be in hand, usually so many."""
        return min(usual, self._in_hand) if self._makes_jobs else usual

    def room(self, usual: int) -> int:
        """Points that may be claimed, where it would usually be so many.

        None rather than a few, if there is room for more soon.
        """
        if not self._makes_jobs:
            return usual
        free = self._free()
        if free >= self._least:
            return min(usual, free)
        return 0 if self._is_soon() or self.unknown >= self._least else min(usual, self._least)

    def _free(self) -> int:
        return self._in_hand - self.length - self.unknown

    def _is_soon(self) -> bool:
        """Whether places come free fast enough that a claim may wait for some."""
        now = self._clock.monotonic()
        return self._pace.seconds_to_wait(self._least - 1, now) < _SOON_SECONDS

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, *, is_large: bool = False) -> AsyncIterator[float]:
        """One attempt for this namespace; gives 0.0, or the seconds to try again after."""
        self._makes_jobs = True
        large = self._large.turn(namespace) if is_large else None
        async with large or contextlib.nullcontext(self._put_off(namespace)) as seconds:
            if seconds:
                yield seconds
                return
            if self.length == self._least:
                self._pace.moved_at = self._clock.monotonic()  # from now on some wait
            self.length += 1
            try:
                await self._places.wait(namespace)
                try:
                    yield 0.0
                finally:
                    self._places.leave(namespace)
            finally:
                is_scarce = self.length > self._least
                self._pace.note_free(self._clock.monotonic(), is_scarce=is_scarce)
                self.length -= 1

    def _put_off(self, namespace: str) -> float:
        """Seconds after which a Job comes back that finds too many before it; 0.0 = it stays."""
        has_any = self._places.held(namespace) or self._places.waiting(namespace)
        if not has_any or self.length < self._in_hand or self._is_soon():
            return 0.0
        return self._pace.put_off(self._clock.monotonic(), namespace)
