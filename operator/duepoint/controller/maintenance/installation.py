"""This installation for people without access to it, and others beside it.

``InstallationReport`` writes how the installation is as an annotation of its Lease. The leader
renews its Lease every two seconds anyway; a line of JSON that travels with it costs no write. The
chart lets every user of the cluster read this one Lease, so that ``duepoint why`` can name a worker
that is missing, a Redis that does not answer or a clock that is wrong to a user who may see a
namespace of their own only. Therefore it holds no address, no key and no text of a server:
versions, counts, and which part is in trouble since when. ``kube.installation`` reads it back.
Redis is asked for workers and servers every 15 s, and for what is due, which takes commands for
each shard, once the first point that was seen is due, so that an idle queue stays idle.

``OtherInstalls`` finds out whether another installation looks after the same Schedules, or the same
index. Each elects a leader by a Lease of its own, so two of them do not see each other: Jobs still
run once, by their names, but webhooks and stream entries come twice. Every status names the
installation that wrote it; a mark that we made and that is another one afterwards was written by
another installation. That is reported until nothing was seen of it for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from duepoint import __version__, errors, services, telemetry
from duepoint.clock import Clock
from duepoint.controller.observed import Observed
from duepoint.controller.status import published
from duepoint.delayqueue import serverhealth
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import events, times
from duepoint.kube.installation import ANNOTATION, InstallationState
from duepoint.schedules.conditions import Reason

#: Redis is asked this often.
LOOK_SECONDS = 15.0
#: What is due is asked for at least this often: an earlier point may have been added meanwhile.
_REST_SECONDS = 600.0
_MOST_SECONDS = 3.0
#: Parts of which the text is our own and tells no address.
_PLAIN_PARTS = frozenset({"clock", serverhealth.PART})
_SECOND_US = 1_000_000


class InstallationReport:
    """Keeps the annotation; one for each term of a leader.

    Args:
        annotate: puts annotations on the Lease, with its next renewal.
    """

    def __init__(
        self,
        *,
        queue: DelayQueue,
        clock: Clock,
        health: services.Health,
        annotate: Callable[[Mapping[str, str]], None],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._health = health
        self._annotate = annotate
        self._state = InstallationState(version=__version__)
        self._rests_until_us = 0

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._state = msgspec.structs.replace(
                await self._looked(), at=self._now(), troubles=_bare(self._health.troubles())
            )
            self._annotate({ANNOTATION: msgspec.json.encode(self._state).decode()})
            await self._clock.sleep(LOOK_SECONDS)

    async def _looked(self) -> InstallationState:
        skew_us = getattr(self._clock, "skew_us", None)
        skew = None if skew_us is None else round(skew_us / _SECOND_US, 3)
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                seen = await self._queue.counts.index_view()
                await self._queue.layouts.read()
                await self._count()
        except (TimeoutError, errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.debug("the queue was not looked at", error=str(trouble))
            since = self._state.redis_down_since or self._now()
            return msgspec.structs.replace(
                self._state, redis_down_since=since, clock_skew_seconds=skew
            )
        return msgspec.structs.replace(
            self._state,
            redis=seen.server,
            redis_down_since="",
            workers=len(seen.workers),
            worker_troubles={name: _bare_text(text) for name, text in seen.troubles},
            clock_skew_seconds=skew,
            memory_used_bytes=seen.memory_used,
            memory_limit_bytes=seen.memory_limit,
        )

    async def _count(self) -> None:
        now_us = self._clock.now_us()
        if now_us < self._rests_until_us:
            return
        totals = await self._queue.counts.totals()
        rested_us = now_us + int(_REST_SECONDS * _SECOND_US)
        first_us = totals.first_due_us
        self._rests_until_us = rested_us if first_us is None else min(rested_us, first_us)
        lag = round(totals.lag_us / _SECOND_US, 1)
        self._state = msgspec.structs.replace(self._state, due=totals.due, lag_seconds=lag)

    def _now(self) -> str:
        now_us = self._clock.now_us()
        return times.time_text(now_us - now_us % _SECOND_US)


def _bare(troubles: Mapping[str, str]) -> dict[str, str]:
    return {part: text if part in _PLAIN_PARTS else "" for part, text in sorted(troubles.items())}


def _bare_text(text: str) -> str:
    """The parts that a worker names, ``part: text; part: text``, without the texts of servers."""
    parts = [part.partition(": ") for part in text.split("; ")]
    shown = [
        f"{name}: {said}" if name in _PLAIN_PARTS else name
        for name, colon, said in parts
        if colon and name.replace(" ", "").isalpha()
    ]
    return "; ".join(shown)


PART = "installation"

#: From the last sight of another one to forgetting it.
_FORGET_SECONDS = 900.0


class OtherInstalls:
    """Reports other installations; one for the life of an operator.

    Args:
        own: this installation: namespace and name of its Lease.
    """

    def __init__(self, *, own: str, clock: Clock, health: services.Health) -> None:
        self.own = own
        self._clock = clock
        self._health = health
        self._found_at: float | None = None

    def found(self, seen: Observed, record: Callable[[events.Event], None]) -> None:
        """A Schedule has a status that another installation wrote over ours."""
        other = published.managed_by(seen.status)
        if not other or other == self.own:
            return
        self.refused()
        what = f"writes the status of Schedule {seen.identity}"
        message = f"the installation {other} {what}; this one is {self.own}. {_REMEDY}"
        if self._health.unwell(PART, message):
            telemetry.logger.error("another installation", other=other, own=self.own, what=what)
            record(_about(seen, self.own, other))

    def refused(self) -> None:
        """Our Redis holds an index that another installation looks after."""
        telemetry.other_installs.set(1)
        self._found_at = self._clock.monotonic()

    def forget(self) -> None:
        """Report nothing any more once nothing was seen of it for long."""
        now = self._clock.monotonic()
        if self._found_at is not None and now - self._found_at >= _FORGET_SECONDS:
            self._found_at = None
            telemetry.other_installs.set(0)
            self._health.well(PART)


_REMEDY = "Webhooks and stream entries come twice: remove one, or give each namespaces of its own"


def _about(seen: Observed, own: str, other: str) -> events.Event:
    return events.Event(
        regarding=events.ObjectReference(namespace=seen.namespace, name=seen.name, uid=seen.uid),
        reason=Reason.OTHER_INSTALL,
        action="Reconcile",
        note=f"the installations {own} and {other} both look after this Schedule. {_REMEDY}",
        warning=True,
    )
