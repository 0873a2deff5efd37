"""A public report about this installation, and the detection of other installations.

``InstallationReport`` publishes the state of the installation as an annotation of its Lease. The
leader renews its Lease every two seconds anyway, so a line of JSON on it costs no extra write. The
chart lets every user of the cluster read this one Lease, so that ``duepoint why`` can name a
missing worker, a Redis that does not answer or a wrong clock even to a user who may only see one
namespace. So the report has no address, no key and no text from a server, but versions, counts, and
which part has been failing since when. ``kube.installation`` reads it back. Redis is asked for
workers and servers every 15 s. Due points, which take commands for each shard, are counted only
once the first known point is due, so that an idle queue stays idle.

``OtherInstalls`` detects another installation that manages the same Schedules or the same index.
Each elects a leader with a Lease of its own, so two of them do not see each other: Jobs still run
once, because of their names, but webhooks and stream entries are delivered twice. Every status
names the installation that wrote it. If another name replaces ours, another installation is at
work. That is reported until there was no sign of it for a while.
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

#: How often Redis is read.
LOOK_SECONDS = 15.0
#: Due points are counted at least this often: an earlier point may have been added meanwhile.
_REST_SECONDS = 600.0
_MOST_SECONDS = 3.0
#: Parts of the health whose texts are our own and contain no address.
_PLAIN_PARTS = frozenset({"clock", serverhealth.PART})
_SECOND_US = 1_000_000


class InstallationReport:
    """Keeps the annotation up to date; one for each term of a leader.

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
    """Return a worker's troubles, ``part: text; part: text``, without texts from servers."""
    parts = [part.partition(": ") for part in text.split("; ")]
    shown = [
        f"{name}: {said}" if name in _PLAIN_PARTS else name
        for name, colon, said in parts
        if colon and name.replace(" ", "").isalpha()
    ]
    return "; ".join(shown)


PART = "installation"

#: Another installation is forgotten this long after its last sign.
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
        """Report a Schedule whose status another installation has overwritten."""
        other = published.read(seen.status).managed_by
        if not other or other == self.own:
            return
        self.refused()
        what = f"writes the status of Schedule {seen.identity}"
        message = f"the installation {other} {what}; this one is {self.own}. {_REMEDY}"
        if self._health.unwell(PART, message):
            telemetry.logger.error("another installation", other=other, own=self.own, what=what)
            record(_about(seen, self.own, other))

    def refused(self) -> None:
        """Report that another installation manages the index in our Redis."""
        telemetry.other_installs.set(1)
        self._found_at = self._clock.monotonic()

    def forget(self) -> None:
        """Stop the report once there was no sign of another installation for long."""
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
