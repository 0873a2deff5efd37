"""Whether another installation looks after the same Schedules, or the same index.

Each installation elects a leader by a Lease of its own, so two of them do not see each other: Jobs
still run once, by their names, but webhooks and stream entries come twice, and statuses tell of two
truths. Every status names the installation that wrote it; the index refuses a second one by itself.
A mark that we made and that is another one afterwards was written by another installation. A watch
may show a state from before our write, so a suspicion is proved by a fresh look before it is
reported: by readiness, metric, log and an Event, until nothing was seen of it for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duepoint import clock as clocks
from duepoint import services, telemetry
from duepoint.clock import Clock
from duepoint.controller.observed import Observed
from duepoint.controller.status import published
from duepoint.kube import errors as kube_errors
from duepoint.kube import events, port, schedules
from duepoint.schedules.conditions import Reason

PART = "installation"

#: Between two looks, and from the last proof to forgetting it.
_LOOK_SECONDS = 30.0
_FORGET_SECONDS = 900.0


class OtherInstalls:
    """Suspects, proves and tells; one for the life of an operator.

    Args:
        own: this installation: namespace and name of its Lease.
    """

    def __init__(self, *, own: str, api: port.Api, clock: Clock, health: services.Health) -> None:
        self.own = own
        self._api = api
        self._clock = clock
        self._health = health
        self._found_at: float | None = None
        self._suspect: Observed | None = None
        self._news = asyncio.Event()

    def suspect(self, seen: Observed) -> None:
        """A Schedule whose status we had written is not marked as ours."""
        if self._suspect is None and _is_other(published.managed_by(seen.status), self.own):
            self._suspect = seen
            self._news.set()

    def refused(self) -> None:
        """Our Redis holds an index that another installation looks after."""
        self._found()

    def _found(self) -> None:
        self._found_at = self._clock.monotonic()
        self._news.set()
        telemetry.other_installs.set(1)

    async def run(self, record: Callable[[events.Event], None]) -> None:
        """Look until cancelled; ``record`` takes news of the object at which a proof was found."""
        while True:
            self._news.clear()
            if self._suspect is None:
                await clocks.wait_for(self._news, self._forgets_in(), self._clock)
            if self._suspect is not None:
                await self._look(self._suspect, record)
                await self._clock.sleep(_LOOK_SECONDS)
                self._suspect = None
            elif (seconds := self._forgets_in()) is not None and seconds <= 0:
                self._found_at = None
                telemetry.other_installs.set(0)
                self._health.well(PART)

    async def _look(self, seen: Observed, record: Callable[[events.Event], None]) -> None:
        try:
            found = await self._read(seen)
        except kube_errors.ApiError as trouble:
            telemetry.logger.debug("a status was not read", error=str(trouble))
            return
        other = "" if found is None else published.managed_by(bytes(found.status))
        if _is_other(other, self.own):
            self._found()
            what = f"writes the status of Schedule {seen.identity}"
            message = f"the installation {other} {what}; this one is {self.own}. {_REMEDY}"
            if self._health.unwell(PART, message):
                telemetry.logger.error("another installation", other=other, own=self.own, what=what)
            record(_about(seen, self.own, other))

    async def _read(self, seen: Observed) -> schedules.Schedule | None:
        """The object as it is now; by a list, which needs no further right."""
        query = {"fieldSelector": f"metadata.name={seen.name}"}
        path = schedules.collection(seen.namespace)
        pages = self._api.list_pages(path, schedules.Schedule, query=query)
        found = [one async for page in pages for one in page.items]
        return next((one for one in found if one.metadata.uid == seen.uid), None)

    def _forgets_in(self) -> float | None:
        if self._found_at is None:
            return None
        return max(0.0, self._found_at + _FORGET_SECONDS - self._clock.monotonic())


_REMEDY = "Webhooks and stream entries come twice: remove one, or give each namespaces of its own"


def _is_other(name: str, own: str) -> bool:
    return bool(name) and name != own


def _about(seen: Observed, own: str, other: str) -> events.Event:
    return events.Event(
        regarding=events.ObjectReference(namespace=seen.namespace, name=seen.name, uid=seen.uid),
        reason=Reason.OTHER_INSTALL,
        action="Reconcile",
        note=f"the installations {own} and {other} both look after this Schedule. {_REMEDY}",
        warning=True,
    )
