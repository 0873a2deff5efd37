"""Where an attempt waits for its place, by its kind: no kind waits behind another.

A Job has a connection to the API server for a moment (``job_slots``): those come free by
themselves, so they have no reserve and only the order is fair. A webhook, or a record for another
server, may take its whole time limit (``receiver_slots``), and what gets no place soon is put off;
so is a Job while the API server is slow. What a check reads it reads at the API server, in places
of its own. Entries of streams in our own Redis are parts of a few scripts and wait for nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from duepoint import shares
from duepoint.clock import Clock
from duepoint.runs import outcome
from duepoint.schedules import actions
from duepoint.schedules.conditions import Reason
from duepoint.worker.actioncache import ActionUnreadable
from duepoint.worker.job_slots import JobSlots
from duepoint.worker.receiver_slots import ReceiverSlots

#: Checks at a time; several objects are read for each.
_CHECKS = 32
_SECOND_US = 1_000_000
_LEAST_US = _SECOND_US // 10

#: The place of what is not tried.
_NOWHERE = contextlib.nullcontext(0.0)


class AttemptSlots:
    """Of one worker. As context managers; what they give are seconds: above 0 there is no place.

    Args:
        most: attempts of a kind at a time.
    """

    def __init__(self, clock: Clock, most: int, jobs: JobSlots) -> None:
        self.jobs = jobs
        self._checks: shares.FairPlaces[str] = shares.FairPlaces(_CHECKS, greed=None)
        self._receivers = ReceiverSlots(clock, most)

    def of(
        self,
        namespace: str,
        outline: actions.Action | ActionUnreadable,
        *,
        is_crowded: bool | None = None,
    ) -> contextlib.AbstractAsyncContextManager[float]:
        """Where an attempt at this action waits before its time begins."""
        if isinstance(outline, ActionUnreadable):
            return _NOWHERE  # nothing is tried
        if not isinstance(outline.target, actions.JobAction):
            return self._receivers.turn(namespace)
        template = outline.target.template
        size = template.size if isinstance(template, actions.PackedTemplate) else 0
        return self.jobs.turn(namespace, large_bytes=size, is_crowded=is_crowded)

    def of_check(self, namespace: str) -> contextlib.AbstractAsyncContextManager[float]:
        """For a look at what a definition refers to."""
        return _held(self._checks, namespace)


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
