"""A public report about this installation, and the detection of other installations.

``report`` publishes the state of the installation as an annotation of its Lease. The
leader renews its Lease every two seconds anyway, so a line of JSON on it costs no extra write. The
chart lets every user of the cluster read this one Lease, so that ``duepoint why`` can name a
missing worker, a Redis that does not answer or a wrong clock even to a user who may only see one
namespace. So the report has no address, no key and no text from a server, but versions, counts, and
which part has been failing since when. ``kube.installation`` reads it back. Redis is asked for
workers and servers every 15 s. Counting due points takes commands for each shard, so they are
counted only once the first known point is due, and an idle queue stays idle.

``OtherInstalls`` detects another installation that manages the same Schedules or the same index.
Each elects a leader with a Lease of its own, so two of them do not see each other: Jobs still run
once, because of their names, but webhooks and stream entries are delivered twice. Every status
names the installation that wrote it. If another name replaces ours, another installation is at
work. It is reported until there has been no sign of it for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from duepoint import __version__, errors, services, telemetry
from duepoint.clock import Clock
from duepoint.comparedclock import ComparedClock
from duepoint.controller.observed import Observed
from duepoint.controller.status import events as changes
from duepoint.controller.status import published
from duepoint.delayqueue import serverhealth
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import events, times
from duepoint.kube.installation import ANNOTATION, InstallationState
from duepoint.schedules.conditions import Reason

#: The pause between two reports, each with a read of Redis.
_REPORT_SECONDS = 15.0
#: Due points are counted at least this often: an earlier point may have been added meanwhile.
_MOST_UNCOUNTED_SECONDS = 600.0
_READ_TIMEOUT_SECONDS = 3.0
#: Parts of the health whose texts are ours and contain no address.
_PLAIN_PARTS = frozenset({"clock", serverhealth.PART})
_SECOND_US = 1_000_000


async def report(
    *,
    queue: DelayQueue,
    clock: Clock,
    health: services.Health,
    annotate: Callable[[Mapping[str, str]], None],
) -> None:
    """Publish the state of this installation until cancelled, during one term of a leader.

    Args:
        annotate: adds annotations to the Lease when it is next renewed.
    """
    state, count_at_us = InstallationState(version=__version__), 0
    while True:
        now_us = clock.now_us()
        now = times.time_text(now_us - now_us % _SECOND_US)
        fields: dict[str, Any] = {"at": now, "troubles": _redacted(health.troubles())}
        if isinstance(clock, ComparedClock) and clock.skew_us is not None:
            fields["clock_skew_seconds"] = round(clock.skew_us / _SECOND_US, 3)
        try:
            async with asyncio.timeout(_READ_TIMEOUT_SECONDS):
                view = await queue.inspection.index_view()
                await queue.layouts.read()
                if now_us >= count_at_us:
                    totals = await queue.inspection.totals()
                    count_at_us = now_us + int(_MOST_UNCOUNTED_SECONDS * _SECOND_US)
                    if totals.first_due_us is not None:
                        count_at_us = min(count_at_us, totals.first_due_us)
                    fields["due"] = totals.due
                    fields["lag_seconds"] = round(totals.lag_us / _SECOND_US, 1)
        except (TimeoutError, errors.TryLater, errors.WorldChanged) as trouble:
            telemetry.logger.debug("the queue was not read", error=str(trouble))
            fields["redis_down_since"] = state.redis_down_since or now
        else:
            fields |= {
                "redis": view.server,
                "redis_down_since": "",
                "workers": len(view.workers),
                "worker_troubles": {name: _redacted_text(text) for name, text in view.troubles},
                "memory_used_bytes": view.memory_used,
                "memory_limit_bytes": view.memory_limit,
            }
        state = msgspec.structs.replace(state, **fields)
        annotate({ANNOTATION: msgspec.json.encode(state).decode()})
        await clock.sleep(_REPORT_SECONDS)


def _redacted(troubles: Mapping[str, str]) -> dict[str, str]:
    return {part: text if part in _PLAIN_PARTS else "" for part, text in sorted(troubles.items())}


def _redacted_text(text: str) -> str:
    """Return a worker's troubles, ``part: text; part: text``, without texts from servers."""
    parts = [part.partition(": ") for part in text.split("; ")]
    shown = [
        f"{name}: {said}" if name in _PLAIN_PARTS else name
        for name, colon, said in parts
        if colon and name.replace(" ", "").isalpha()
    ]
    return "; ".join(shown)


PART = "installation"

#: The report of another installation is withdrawn this long after its last sign.
_FORGET_SECONDS = 900.0


class OtherInstalls:
    """Detects and reports other installations, as long as the operator runs.

    Args:
        own: this installation: namespace and name of its Lease.
    """

    def __init__(self, *, own: str, clock: Clock, health: services.Health) -> None:
        self.own = own
        self._clock = clock
        self._health = health
        self._found_at: float | None = None

    def found(self, seen: Observed, record: Callable[[events.Event], None]) -> None:
        """Report another installation if it has overwritten the status of this Schedule."""
        other = published.read(seen.status).managed_by
        if not other or other == self.own:
            return
        self.refused()
        message = f"the installation {other} writes the status of Schedule {seen.identity}; "
        if self._health.unwell(PART, f"{message}this one is {self.own}. {_REMEDY}"):
            telemetry.logger.error("another installation", other=other, own=self.own)
            about = events.ObjectReference(namespace=seen.namespace, name=seen.name, uid=seen.uid)
            both = f"the installations {self.own} and {other} both manage this Schedule"
            note = f"{both}. {_REMEDY}"
            record(changes.new_event(about, "Reconcile", Reason.OTHER_INSTALL, note))

    def refused(self) -> None:
        """Report that another installation manages the index in our Redis."""
        telemetry.other_installs.set(1)
        self._found_at = self._clock.monotonic()

    def forget(self) -> None:
        """Withdraw the report if there has been no sign of another installation for long."""
        now = self._clock.monotonic()
        if self._found_at is not None and now - self._found_at >= _FORGET_SECONDS:
            self._found_at = None
            telemetry.other_installs.set(0)
            self._health.well(PART)


_REMEDY = "Webhooks and stream entries come twice: remove one, or give each namespaces of its own"
