"""Where Jobs wait for one of the connections to the API server.

A Job's attempt begins when it has a connection: waiting inside the attempt would use up its time,
end it when it had hardly begun, and have the Job asked for a second time. What waits here is held
by this worker and by no other, so a worker that makes Jobs takes only as many as keep its
connections busy for the moment: of a burst of thousands, all workers then end at the same time. A
connection that comes free is the namespace's that has the fewest, so nobody waits behind another's
burst.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from duepoint import shares
from duepoint.kube import api

#: For each connection, the Job under way and three that follow at once.
_IN_HAND = 4
#: Large Jobs at a time: the API server takes so long over one that small ones wait behind many.
_LARGE = 4


class JobLine:
    """``turn`` is around each attempt.

    Attributes:
        length: attempts that wait or are under way.
        unknown: claimed points of which nobody knows yet whether they are Jobs.
    """

    def __init__(self, places: int = api.REQUEST_CONNECTIONS) -> None:
        # A creation ends by itself in a moment: nobody needs a reserve, only the order matters.
        self._places: shares.FairPlaces[str] = shares.FairPlaces(places, greed=None)
        self._large: shares.FairPlaces[str] = shares.FairPlaces(_LARGE)
        self._in_hand = _IN_HAND * places
        self._least = places
        self._makes_jobs = False
        self.length = 0
        self.unknown = 0

    def room(self, usual: int) -> int:
        """Points that may be claimed, where it would usually be so many.

        None rather than a few: a claim costs as much as dozens of its points.
        """
        if not self._makes_jobs:
            return usual
        free = self._in_hand - self.length - self.unknown
        return min(usual, free if free >= self._least else 0)

    @contextlib.contextmanager
    def together(self, points: int) -> Iterator[Callable[[], None]]:
        """So many are made together; call what is given as each of them ends."""
        self._makes_jobs = True
        self.length += points
        left = points

        def note_end() -> None:
            nonlocal left
            left -= 1
            self.length -= 1

        try:
            yield note_end
        finally:
            self.length -= left

    def claimed(self, points: int) -> Callable[[], None]:
        """These may all be Jobs; call what is returned, once or more, when that is known."""
        self.unknown += points
        stack = contextlib.ExitStack()
        stack.callback(self._found_out, points)
        return stack.close

    def _found_out(self, points: int) -> None:
        self.unknown -= points

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str, *, is_large: bool = False) -> AsyncIterator[float]:
        """One attempt for this namespace; gives 0.0, as ``places`` do."""
        self._makes_jobs = True
        self.length += 1
        try:
            async with contextlib.AsyncExitStack() as held:
                for line in (self._large, self._places) if is_large else (self._places,):
                    await line.wait(namespace)
                    held.callback(line.leave, namespace)
                yield 0.0
        finally:
            self.length -= 1
