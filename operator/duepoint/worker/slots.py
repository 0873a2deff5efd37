"""Where an attempt waits for its place, by its kind: no kind waits behind another.

A Job has a connection to the API server for a moment (``JobSlots``): those come free by themselves,
so they have no reserve and only the order is fair. A webhook, or a record for another server, may
take its whole time limit (``ReceiverSlots``), and what gets no place soon is put off; so is a Job
while the API server is slow, and a large Job that finds all places for such taken.
What a check reads it reads at the API server, in places of its own. Entries of streams in our own
Redis are parts of a few scripts and wait for nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from duepoint import clock as clocks
from duepoint import shares
from duepoint.kube import transport
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.targets import pace
from duepoint.worker.actioncache import ActionCache, ActionUnreadable
from duepoint.worker.plan import Attempt

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


class AttemptSlots:
    """Of one worker. As context managers; what they give are seconds: above 0 there is no place.

    Args:
        most: attempts of a kind at a time.
    """

    def __init__(
        self, clock: clocks.Clock, most: int, jobs: JobSlots, actions: ActionCache
    ) -> None:
        self.jobs = jobs
        self._actions = actions
        self._checks: shares.FairPlaces[str] = shares.FairPlaces(_CHECKS, greed=None)
        self._receivers = ReceiverSlots(clock, most)

    def of(self, attempt: Attempt) -> contextlib.AbstractAsyncContextManager[float]:
        """Where an attempt waits before its time begins."""
        known = attempt.definition
        outline = self._actions.outline(known.namespace, known.target)
        if isinstance(outline, ActionUnreadable):
            return _NOWHERE  # nothing is tried
        if not isinstance(outline.target, actions.JobAction):
            return self._receivers.turn(known.namespace)
        template = outline.target.template
        size = template.size if isinstance(template, actions.PackedTemplate) else 0
        return self.jobs.turn(known.namespace, large_bytes=size)

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


class JobSlots:
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
        self._large = ReceiverSlots(clock, _LARGE_PLACES)
        self._pace = pace.Pace(clock.monotonic())
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
    async def turn(self, namespace: str, *, large_bytes: int = 0) -> AsyncIterator[float]:
        """One attempt for this namespace; gives 0.0, or the seconds to try again after."""
        self._makes_jobs = True
        large = self._large.turn(namespace) if large_bytes else None
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


class ReceiverSlots:
    """Places for attempts that depend on a server of a user: webhooks, Kafka, another Redis.

    Such a server may hang, and an attempt at it lasts until its time limit. No namespace gets more
    than its share of the places (``duepoint.shares``), however many servers it names. An attempt
    that gets none waits for one only where it is to be had soon: what waits is in this worker's
    hands and takes the room of what it could claim otherwise. All else is put off: due again a
    little later, and no attempt is used up.
    """

    def __init__(self, clock: clocks.Clock, places: int) -> None:
        self._clock = clock
        self._places: shares.FairPlaces[str] = shares.FairPlaces(places)
        #: Of namespaces that had to wait.
        self._paces: dict[str, pace.Pace] = {}

    @contextlib.asynccontextmanager
    async def turn(self, namespace: str) -> AsyncIterator[float]:
        """Around an attempt of this namespace; gives 0.0, or the seconds to try again after."""
        seconds = await self.enter(namespace)
        if seconds:
            yield seconds
            return
        try:
            yield 0.0
        finally:
            self.leave(namespace)

    async def enter(self, namespace: str) -> float:
        """0.0 = there is a place, who has it must ``leave``; else seconds to try again after."""
        if self._places.take(namespace):
            return 0.0
        now = self._clock.monotonic()
        known = self._paces.setdefault(namespace, pace.Pace(now))
        seconds = known.patience(self._places.waiting(namespace), now)
        has_any = self._places.held(namespace) or self._places.waiting(namespace)
        if not has_any:  # the next place is its own: the pace is that of others
            seconds = pace.PATIENCE_SECONDS
        elif not seconds:
            return known.put_off(now)
        if await self._places.wait(namespace, seconds):
            return 0.0
        return known.put_off(self._clock.monotonic())

    def leave(self, namespace: str) -> None:
        """The place is free again."""
        known = self._paces.get(namespace)
        if known is not None:
            known.note_free(self._clock.monotonic(), is_scarce=True)
        self._places.leave(namespace)
        if known is not None and not self._places.held(namespace):
            self._paces.pop(namespace, None)
