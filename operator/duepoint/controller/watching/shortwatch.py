"""How kopf watches Schedules: from now on, and without a worker for each object.

kopf begins a watch with every object there is, of which we want nothing: our own comparison has
just read them, and reads them again after each such beginning. And it gives each object that
changes a task, a queue and timers of its own, so that handlers of one object never overlap; the
reconciler sees to that itself. Together they cost 0.7 to 1.7 ms of CPU an object, more than all the
rest that is done for it. So kopf is given the version of a list of one, all objects changed before
it are the comparison's, and changes are handed over as they arrive (``shortlines``); kopf gets
their versions, from which it goes on after a pause. Connections, logins and waits stay kopf's.

While no comparison has succeeded (Redis is away, perhaps) kopf begins as it always does, so that
each object can say what it waits for; so it does for ScheduleRuns, which no comparison reads.

kopf has no setting for this: the function that opens its watches is wrapped. Belongs to kopf's
thread; which life of kopf asks is known by its context.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kopf._cogs.clients.api as kopf_api
import kopf._cogs.clients.watching as kopf_watching

from duepoint import telemetry
from duepoint.controller.sighting import Sighting
from duepoint.controller.watching import shortlines
from duepoint.kube import schedules

#: Nothing but names and versions: an object's spec may be of any size and depth.
_ACCEPT = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

_CHANGES = frozenset(("ADDED", "MODIFIED", "DELETED"))

_open_watch = kopf_watching.watch_objs


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """What one life of kopf does with a watch of Schedules.

    Attributes:
        is_compared: whether all objects have been read by somebody else, and will be again.
        on_begin: told of each short beginning, once its version is known.
        take: told of changes that were read together.
        take_unread: told the kind of a change, ADDED, MODIFIED or DELETED, and the object, where
            it could not be read with others.
    """

    is_compared: Callable[[], bool]
    on_begin: Callable[[], None]
    take: Callable[[Sequence[Sighting]], None]
    take_unread: Callable[[str, Mapping[str, Any]], None]


_short: contextvars.ContextVar[Short] = contextvars.ContextVar("short")


def use(short: Short) -> None:
    """For every watch that is opened in the present context."""
    _short.set(short)
    kopf_watching.watch_objs = _watch_objs


async def _watch_objs(*, since: str | None = None, **given: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - kopf's
    """As kopf's function of this name, which continues ``since`` a version; None = from scratch."""
    short = _short.get(None)
    if short is None or given["resource"].plural != schedules.PLURAL:
        shortlines.use(None)
        async for event in _open_watch(since=since, **given):
            yield event
        return
    if since is None and short.is_compared():
        since = await _version_now(given)  # after kopf's own retries trouble ends this life of it
        short.on_begin()
        yield _place(since)  # what kopf takes for the end of the first list
    reading = shortlines.Reading(short.take, is_short=since is not None)
    shortlines.use(reading)
    async for event in _open_watch(since=since, **given):
        if reading.is_short and event["type"] in _CHANGES:
            _hand_over(short, event)
            yield _place(event["object"]["metadata"]["resourceVersion"])
        else:
            reading.is_short |= event["type"] == "BOOKMARK"  # the end of kopf's first list
            yield event


def _hand_over(short: Short, event: Mapping[str, Any]) -> None:
    """What cannot be read is looked at by the comparison, and hides no other change."""
    try:
        short.take_unread(event["type"], event["object"])
    except Exception as bug:  # noqa: BLE001 - as kopf does with a handler's
        telemetry.logger.error("change cannot be read", error=repr(bug), exc_info=bug)
        short.on_begin()


def _place(version: str) -> dict[str, Any]:
    """An event from which kopf takes no more than where it stands."""
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}


async def _version_now(given: dict[str, Any]) -> str:
    """The version of a list of one object that is read now."""
    address = given["resource"].get_url(namespace=given["namespace"], params={"limit": "1"})
    listed = await kopf_api.get(
        url=address,
        headers={"Accept": _ACCEPT},
        settings=given["settings"],
        logger=kopf_watching.logger,
    )
    return str(listed["metadata"]["resourceVersion"])
