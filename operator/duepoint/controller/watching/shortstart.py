"""How kopf begins to watch Schedules: from now on, instead of with all of them.

kopf begins a watch with every object there is, 0.66 ms of CPU for each, of which we want nothing:
our own comparison has just read them, and reads them again after each such beginning. So kopf is
given the version of a list of one, and all objects changed before it are the comparison's. While no
comparison has succeeded (Redis is away, perhaps) kopf begins as it always does, so that each object
can say what it waits for; so it does for ScheduleRuns, which no comparison reads.

kopf has no setting for this: the function that opens its watches is wrapped. Belongs to kopf's
thread; which life of kopf asks is known by its context.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import kopf._cogs.clients.api as kopf_api
import kopf._cogs.clients.watching as kopf_watching

from duepoint.kube import schedules

#: Nothing but names and versions: an object's spec may be of any size and depth.
_ACCEPT = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

_open_watch = kopf_watching.watch_objs


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginnings:
    """What one life of kopf does when it begins a watch of Schedules.

    Attributes:
        is_compared: whether all objects have been read by somebody else, and will be again.
        on_begin: told of each short beginning, once its version is known.
    """

    is_compared: Callable[[], bool]
    on_begin: Callable[[], None]


_beginnings: contextvars.ContextVar[Beginnings] = contextvars.ContextVar("beginnings")


def use(beginnings: Beginnings) -> None:
    """For every watch that is opened in the present context."""
    _beginnings.set(beginnings)
    kopf_watching.watch_objs = _watch_objs


async def _watch_objs(*, since: str | None = None, **given: Any) -> AsyncIterator[Any]:  # noqa: ANN401 - kopf's
    """As kopf's function of this name, which continues ``since`` a version; None = from scratch."""
    chosen = _beginnings.get(None)
    is_ours = given["resource"].plural == schedules.PLURAL
    if since is None and chosen is not None and is_ours and chosen.is_compared():
        since = await _version_now(given)  # after kopf's own retries trouble ends this life of it
        chosen.on_begin()
        # What kopf takes for the end of the first list.
        yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": since}}}
    async for event in _open_watch(since=since, **given):
        yield event


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
