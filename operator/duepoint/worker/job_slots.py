"""Where Jobs wait for one of the connections to the API server.

A Job's attempt begins when it has a connection: waiting inside the attempt would use up its time,
end it when it had hardly begun, and have the Job asked for a second time. What waits here is held
by this worker and by no other, so a worker that makes Jobs takes only as many as keep its
connections busy for the moment: of a burst of thousands, all workers then end at the same time. A
connection that comes free is the namespace's that has the fewest, so nobody waits behind another's
burst.

While the API server is slow, or does not answer, what waits for it must not keep webhooks and
streams from being claimed: then a worker goes on claiming, a few points at a time, and the Jobs
among them that find enough others before them are put off.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from duepoint import clock as clocks
from duepoint import shares
from duepoint.kube import transport
from duepoint.targets import pace
from duepoint.worker.large_jobs import LargeJobs

#: For each connection, the Job under way and three that follow at once.
_IN_HAND = 4
#: Room for a claim that comes free within this is waited for: a claim of a few points costs as
#: much as dozens of them.
_SOON_SECONDS = 0.05


class JobSlots:
    """``turn`` is around each attempt.

    Attributes:
        length: attempts that wait or are under way.
        unknown: claimed points of which is not known yet whether they are Jobs.
    """

    def __init__(self, clock: clocks.Clock, places: int = transport.REQUEST_CONNECTIONS) -> None:
        self._clock = clock
        # A creation ends by itself in a moment: nobody needs a reserve, only the order matters.
        self._places: shares.FairPlaces[str] = shares.FairPlaces(places, greed=None)
        self._large = LargeJobs(clock)
        self._pace = pace.Pace(clock.monotonic())
        self._in_hand = _IN_HAND * places
        self._least = places
        self._makes_jobs = False
        self.length = 0
        self.unknown = 0

    def room(self, usual: int) -> int:
        """Points that may be claimed, where it would usually be so many.

        None rather than a few, if there is room for more soon.
        """
        if not self._makes_jobs:
            return usual
        free = self._in_hand - self.length - self.unknown
        if free >= self._least:
            return min(usual, free)
        return 0 if self._is_soon() or self.unknown >= self._least else min(usual, self._least)

    def _is_soon(self) -> bool:
        """Whether places come free fast enough that a claim may wait for some."""
        now = self._clock.monotonic()
        return self._pace.seconds_to_wait(self._least - 1, now) < _SOON_SECONDS

    def claimed(self, points: int) -> Callable[[], None]:
        """These may all be Jobs; call what is returned, once or more, when that is known."""
        self.unknown += points
        stack = contextlib.ExitStack()
        stack.callback(self._found_out, points)
        return stack.close

    def _found_out(self, points: int) -> None:
        self.unknown -= points

    @contextlib.asynccontextmanager
    async def turn(
        self, namespace: str, *, large_bytes: int = 0, is_crowded: bool | None = None
    ) -> AsyncIterator[float]:
        """One attempt for this namespace; gives 0.0, or the seconds to try again after.

        Args:
            is_crowded: as it was when all Jobs of one claim began to wait; None = as it is.
        """
        self._makes_jobs = True
        async with contextlib.AsyncExitStack() as held:
            if large_bytes:
                seconds = await held.enter_async_context(self._large.turn(namespace, large_bytes))
            else:
                seconds = self._put_off(namespace, is_crowded)
            if seconds:
                yield seconds
                return
            self._add(1)
            held.callback(self._take_off, 1)
            await self._places.wait(namespace)
            held.callback(self._places.leave, namespace)
            yield 0.0

    def is_crowded(self) -> bool:
        """Whether more Jobs wait than are made soon."""
        return self.length >= self._in_hand and not self._is_soon()

    def _put_off(self, namespace: str, is_crowded: bool | None) -> float:  # noqa: FBT001 - see turn
        """Seconds after which a Job comes back that finds too many before it; 0.0 = it stays."""
        has_any = self._places.held(namespace) or self._places.waiting(namespace)
        if not has_any or not (self.is_crowded() if is_crowded is None else is_crowded):
            return 0.0
        return self._pace.put_off(self._clock.monotonic())

    def _add(self, points: int) -> None:
        if self.length <= self._least < self.length + points:
            self._pace.moved_at = self._clock.monotonic()  # from now on some wait
        self.length += points

    def _take_off(self, points: int) -> None:
        if points:
            self._pace.note_free(self._clock.monotonic(), is_scarce=self.length > self._least)
            self.length -= points
