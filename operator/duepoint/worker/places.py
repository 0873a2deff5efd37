"""Where an attempt waits for its place, by its kind: no kind waits behind another.

A Job has a connection to the API server for a moment (``jobline``), an entry of a stream in our own
Redis a part of a script: those come free by themselves, so their places have no reserve and only
the order is fair. A webhook, or a record for somebody else's server, may take its whole time limit
(``outgoing``), and what gets no place soon is put off; so is a Job while the API server is slow.
What a check reads it reads at the API server, in places of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from duepoint import shares
from duepoint.clock import Clock
from duepoint.runs import outcome
from duepoint.schedules.conditions import Reason
from duepoint.worker import jobline
from duepoint.worker.outgoing import Outgoing

#: Checks at a time; several objects are read for each.
_CHECKS = 32
_SECOND_US = 1_000_000
_LEAST_US = _SECOND_US // 10

#: The place of what is not tried.
NOWHERE = contextlib.nullcontext(0.0)


class Places:
    """Of one worker. As context managers; what they give are seconds: above 0 there is no place.

    Args:
        most: attempts of a kind at a time.
    """

    def __init__(self, clock: Clock, most: int, jobs: jobline.JobLine) -> None:
        self.jobs = jobs
        self._streams: shares.FairPlaces[str] = shares.FairPlaces(most, greed=None)
        self._checks: shares.FairPlaces[str] = shares.FairPlaces(_CHECKS, greed=None)
        self._outgoing = Outgoing(clock, most)

    def of_job(
        self, namespace: str, *, large_bytes: int
    ) -> contextlib.AbstractAsyncContextManager[float]:
        """For the creation of a Job; ``large_bytes`` of its template, 0 for a usual one."""
        return self.jobs.turn(namespace, large_bytes=large_bytes)

    def in_stream(self, namespace: str) -> contextlib.AbstractAsyncContextManager[float]:
        """For an entry of our own Redis, or a script full of them."""
        return _held(self._streams, namespace)

    def of_check(self, namespace: str) -> contextlib.AbstractAsyncContextManager[float]:
        """For a look at what a definition refers to."""
        return _held(self._checks, namespace)

    def outside(self, namespace: str) -> contextlib.AbstractAsyncContextManager[float]:
        """For an attempt at somebody else's server; else the seconds to try again after."""
        return self._outgoing.turn(namespace)


@contextlib.asynccontextmanager
async def _held(given: shares.FairPlaces[str], namespace: str) -> AsyncIterator[float]:
    await given.wait(namespace)
    try:
        yield 0.0
    finally:
        given.leave(namespace)


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
