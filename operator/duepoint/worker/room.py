"""Limits what a worker has in hand: how much it claims next, and where an attempt waits.

While one worker holds a point, no other can fire it. So a worker holds a few times as many as it
can try at once, and no more (``Room``). Each shard that is due gets a ``PART`` of the free room. A
shard that had more points than its last claim could take gets a whole batch, because a claim of one
point costs as much as one of hundreds: one shard at a time, so that the server serves the next
claim while the worker plans this one. Shards of the namespaces with the fewest points in hand come
first. When there is no room, namespaces with less than a part in hand still get one, so that a
burst of one namespace keeps no other waiting.

Each kind of attempt has its own queue, so no kind waits behind another (``AttemptPlaces``). A Job
uses a connection to the API server for a moment (``JobPlaces``): connections free up by themselves,
so they need no reserve, only a fair order. A webhook, or a record for another server, may take its
whole time limit (``targets.places``); if it gets no place soon, it is put off. So is a Job while
the API server is slow, and a large Job behind others of its namespace. Checks have places of their
own. Entries of streams in our own Redis need a few scripts and no place.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from duepoint import clock as clocks
from duepoint import shares
from duepoint.delayqueue import messages, sharding
from duepoint.kube import transport
from duepoint.schedules import actions, points
from duepoint.schedules.conditions import Reason
from duepoint.targets import outcome
from duepoint.targets import places as receiverplaces
from duepoint.worker.plan import ActionUnreadable, Attempt, Outline

#: Most points in a claim from a shard that is not known to have more due.
PART = 16
#: A shard with more points due waits until this share of the room is free.
_ENOUGH_OF_ROOM = 1 / 8
#: For namespaces with few points in hand a worker may exceed its limit by this many points.
_BEYOND = 128


#: Shards to claim from, with the most points of each.
Requests = list[tuple[Sequence[messages.ShardId], int]]


class Room:
    """Counts the points in hand, and decides how many to claim next.

    Args:
        most: points that should be in hand.
        batch: most points in one claim.

    Attributes:
        in_hand: points by group of namespaces (``sharding.namespaces_of`` their shard).
        more: how many points were due in each shard beyond those of its last claim.
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

    def requests(
        self, due: Sequence[messages.ShardId]
    ) -> tuple[Requests, Sequence[messages.ShardId]]:
        """Return what to claim from the due shards, and the shards that must wait for room."""
        free, enough = self._free(), self._enough()
        beyond = min(0, self._most - self.in_hand.total()) + _BEYOND
        asked: dict[int, list[messages.ShardId]] = {}
        later: list[messages.ShardId] = []
        has_large = False
        for shard in sorted(due, key=self._in_hand_beside):
            size = min(self._batch, max(self._part, self.more.get(shard, 0)))
            if size > self._part and has_large:
                later.append(shard)
                continue
            if free >= min(size, enough):
                has_large = has_large or size > self._part
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
        """Count the points of a claim as in hand.

        Args:
            on_change: called when fewer points are in hand, or fewer of them may be Jobs.
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
        """Return how many points are in hand of the namespaces that this shard holds."""
        return self.in_hand[sharding.namespaces_of(shard)]


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """The points of one claim that are still in hand.

    Attributes:
        group: the namespaces of their shard, the key in ``Room.in_hand``.
        left: how many points there are.
        unknown: how many of them ``jobs`` still counts as possible Jobs.
    """

    room: Room
    jobs: JobPlaces
    on_change: Callable[[], None]
    group: int
    left: int
    unknown: int

    def ended(self, points: int) -> None:
        """Note that this many more points have ended."""
        points = min(points, self.left)
        self.left -= points
        self.room.in_hand[self.group] -= points
        self.on_change()

    def begun(self, points: int) -> None:
        """Note that this many points have begun: Jobs among them now wait in ``JobPlaces``."""
        points = min(points, self.unknown)
        self.unknown -= points
        self.jobs.unknown -= points

    def kinds_known(self) -> None:
        """Note that every Job among them waits in ``JobPlaces``, so the others are not Jobs."""
        self.begun(self.unknown)
        self.on_change()

    def close(self) -> None:
        """Note that none of them is in hand any more."""
        self.kinds_known()
        self.ended(self.left)


# -- where an attempt waits -----------------------------------------------------------------------

#: Most checks at a time; each reads several objects.
_CHECKS = 32
_SECOND_US = 1_000_000
_LEAST_US = _SECOND_US // 10

#: Jobs in hand for each connection: the one in flight and three that follow at once.
_IN_HAND = 4
#: The worker waits for room that frees up within this, because claiming a few points costs as much
#: as claiming dozens. Two workers made 600 Jobs a second each on two cores, or 32 in 0.05 s.
_SOON_SECONDS = 0.2

#: Most large Jobs being created at a time, one of each namespace. Each keeps its place for so many
#: times as long again, at most a second: other requests to the API server would wait behind many
#: large ones in a row.
_LARGE_PLACES = 4
_REST_AFTER_LARGE, _MOST_REST_SECONDS = 2, 1.0


class AttemptPlaces:
    """The places of one worker, in which its attempts wait by kind until they may begin.

    Args:
        most: attempts at receivers at a time.
    """

    def __init__(self, clock: clocks.Clock, most: int, jobs: JobPlaces) -> None:
        self.jobs = jobs
        self._checks: shares.FairPlaces[str] = shares.FairPlaces(_CHECKS, greed=None)
        self._receivers = receiverplaces.ReceiverPlaces(clock, most)

    @contextlib.asynccontextmanager
    async def of(self, attempt: Attempt, outline: Outline) -> AsyncIterator[float]:
        """Wait for a place and hold it; gives 0.0, or the seconds to retry after without one."""
        namespace = attempt.definition.namespace
        if attempt.point.kind is points.PointKind.CHECK:
            await self._checks.wait(namespace)
            try:
                yield 0.0
            finally:
                self._checks.leave(namespace)
        elif isinstance(outline, ActionUnreadable) or actions.own_stream(outline.target):
            yield 0.0  # no request will be made
        elif isinstance(outline.target, actions.JobAction):
            async with self.jobs.turn(namespace, is_large=outline.target.is_large) as seconds:
                yield seconds
        else:
            async with self._receivers.turn(namespace) as seconds:
                yield seconds


def put_off(seconds: float, namespace: str, *, is_job: bool, left_us: int) -> outcome.Retry:
    """Return the retry of an attempt that got no place; it does not count as an attempt.

    Args:
        left_us: until the slot is given up; the last retry falls just before that.
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

    A Job's attempt begins when it has a connection. Waiting inside the attempt would use up its
    time, end it when it had hardly begun, and request the Job a second time. A Job that waits here
    is claimed, so no other worker can create it. A worker that makes Jobs therefore claims only as
    many as keep its connections busy for the moment; of a burst of thousands, all workers then
    finish at the same time. A connection that frees up goes to the namespace that has the fewest,
    so a burst of one namespace keeps no other waiting.

    While the API server is slow, or does not answer, the waiting Jobs must not keep webhooks and
    streams from being claimed. The worker then goes on claiming, a few points at a time, and puts
    off those Jobs among them that find enough others before them.

    Attributes:
        length: attempts that wait or are in flight.
        unknown: claimed points that may be Jobs; nothing has read yet what they are.
    """

    def __init__(self, clock: clocks.Clock, places: int = transport.REQUEST_CONNECTIONS) -> None:
        self._clock = clock
        # Creating a Job ends in a moment: a fair order is enough, without a reserve.
        self._places: shares.FairPlaces[str] = shares.FairPlaces(places, greed=None)
        self._large = receiverplaces.ReceiverPlaces(clock, _LARGE_PLACES, most=1)
        self._rests: set[asyncio.Task[None]] = set()
        self._pace = shares.Pace(clock.monotonic())
        self._in_hand = _IN_HAND * places
        self._least = places
        self._makes_jobs = False
        self.length = 0
        self.unknown = 0

    def limit(self, usual: int) -> int:
        """Return how many points should be in hand; ``usual`` unless the worker makes Jobs."""
        return min(usual, self._in_hand) if self._makes_jobs else usual

    def room(self, usual: int) -> int:
        """Return how many points may be claimed; ``usual`` unless the worker makes Jobs.

        Returns 0 rather than a few if more room frees up soon.
        """
        if not self._makes_jobs:
            return usual
        free = self._free()
        if free >= self._least:
            return min(usual, free)
        is_soon = self._seconds_to_wait() < _SOON_SECONDS
        return 0 if is_soon or self.unknown >= self._least else min(usual, self._least)

    def _free(self) -> int:
        return self._in_hand - self.length - self.unknown

    def _seconds_to_wait(self) -> float:
        """Return in how many seconds as many places should come free as there are in all."""
        return self._pace.seconds_to_wait(self._least - 1, self._clock.monotonic())

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, *, is_large: bool = False) -> AsyncIterator[float]:
        """Wait for a connection for this namespace; gives 0.0, or the seconds to retry after."""
        self._makes_jobs = True
        seconds = await self._large.enter(namespace) if is_large else self._put_off(namespace)
        if seconds:
            yield seconds
            return
        begun_at = self._clock.monotonic()
        if self.length == self._least:
            self._pace.note_scarce(begun_at)  # from now on some attempts wait
        self.length += 1
        try:
            await self._places.wait(namespace)
            begun_at = self._clock.monotonic()
            try:
                yield 0.0
            finally:
                self._places.leave(namespace)
        finally:
            now = self._clock.monotonic()
            self._pace.note_free(now, is_scarce=self.length > self._least)
            self.length -= 1
            if is_large:
                seconds = min(_REST_AFTER_LARGE * (now - begun_at), _MOST_REST_SECONDS)
                rest = asyncio.create_task(self._leave_large(namespace, after=seconds))
                self._rests.add(rest)
                rest.add_done_callback(self._rests.discard)

    async def _leave_large(self, namespace: str, *, after: float) -> None:
        await self._clock.sleep(after)
        self._large.leave(namespace)

    def _put_off(self, namespace: str) -> float:
        """Return the seconds to put off a Job that finds too many before it; 0.0 = it may wait."""
        has_any = self._places.held(namespace) or self._places.waiting(namespace)
        wait_seconds = self._seconds_to_wait()
        # One that is put off comes back much later than one that waits a little longer.
        most = 2 * self._in_hand if wait_seconds < shares.PATIENCE_SECONDS else self._in_hand
        if not has_any or self.length < most or wait_seconds < _SOON_SECONDS:
            return 0.0
        return self._pace.put_off(self._clock.monotonic(), namespace)
