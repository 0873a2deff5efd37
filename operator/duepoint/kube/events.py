"""The recorder of Kubernetes Events: groups them and limits their rate.

``note`` returns at once; ``run`` posts what was noted, one Event for each object, reason and five
minutes. The first occurrence is posted as an Event; further ones within the window are counted and
written once, as its ``series``. The recorder writes at most 20 Events a second. A bounded number
may wait; others are dropped, because an Event is news and not a record: the status and the ledger
are the record. Events whose write fails are dropped, too. Namespaces take turns, and each has its
share of the bound (``duepoint.shares``): a namespace in which everything fails drops its own
Events, and does not delay those of others.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import structlog

from duepoint import clock as clocks
from duepoint import shares
from duepoint.kube import errors, port, schedules, times

_log = structlog.get_logger(__name__)

WINDOW_SECONDS = 300.0
MOST_PER_SECOND = 20
MOST_WAITING = 1000
NOTE_LIMIT = 1024


def collection(namespace: str) -> str:
    """Return the path of all Events of a namespace."""
    return port.path("/apis/events.k8s.io/v1", namespace, "events")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The object that an Event is about, or a related one."""

    namespace: str
    name: str
    uid: str
    kind: str = schedules.KIND
    api_version: str = schedules.API_VERSION

    def reference(self) -> dict[str, str]:
        """Return the fields of an ObjectReference."""
        named = {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
        }
        return named | {"uid": self.uid} if self.uid else named


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A fact about an object that its users should read.

    Attributes:
        reason: a ``conditions.Reason`` or another word in CamelCase.
        action: the action at the time, such as ``Run`` or ``Reconcile``.
        note: a sentence for people.
        warning: whether a user should take a look.
        related: a related object, such as the Job.
    """

    regarding: ObjectReference
    reason: str
    action: str
    note: str
    warning: bool = False
    related: ObjectReference | None = None


@dataclass(slots=True)
class _Series:
    """The Events about one object with one reason."""

    news: Event
    event_name: str
    first_us: int
    last_us: int
    count: int = 1
    posted: int = 0  # the count that the API server knows
    due: float = 0.0  # when it may be written next, on the monotonic clock

    def counted(self) -> dict[str, Any]:
        last = times.micro_time_text(self.last_us)
        return {"count": self.count, "lastObservedTime": last}


class Recorder:
    """Collects and posts Events. ``component`` is the reportingController, without its group."""

    def __init__(self, api: port.Api, clock: clocks.Clock, component: str) -> None:
        self._api = api
        self._clock = clock
        self._controller = f"{schedules.GROUP}/{component}"
        self._instance = socket.gethostname()[:128] or component
        self._series: dict[tuple[str, str], _Series] = {}
        self._shares: shares.Shares[str] = shares.Shares(MOST_WAITING)
        #: Namespaces with a series; the one whose Event was written last is at the end.
        self._namespaces: OrderedDict[str, None] = OrderedDict()
        self._news = asyncio.Event()

    def note(self, news: Event) -> None:
        """Queue an Event, or count it; never waits and never fails."""
        key = (news.regarding.uid, news.reason)
        now_us = self._clock.now_us()
        series = self._series.get(key)
        if series is not None:
            series.count += 1
            series.last_us = now_us
        elif self._shares.has_room(namespace := news.regarding.namespace):
            self._shares.take(namespace)
            self._namespaces.setdefault(namespace)
            begin = news.regarding.name[:200].rstrip(".-")  # a part of a name ends in neither
            name = f"{begin}.{secrets.token_hex(8)}"
            self._series[key] = _Series(news, name, now_us, now_us)
            self._news.set()

    async def run(self) -> None:
        """Post until cancelled: new Events at once, counts at the end of their window."""
        while True:
            now = self._clock.monotonic()
            self._end_quiet(now)
            if due := [series for series in self._series.values() if series.due <= now]:
                await self._write(self._in_turn(due))
                await self._clock.sleep(1 / MOST_PER_SECOND)
                continue
            self._news.clear()
            first = min((each.due for each in self._series.values()), default=now + WINDOW_SECONDS)
            await clocks.wait_for(self._news, first - now, self._clock)

    def _end_quiet(self, now: float) -> None:
        """Drop the series without an occurrence in their last window."""
        quiet = [(key, each) for key, each in self._series.items() if each.posted == each.count]
        for key, series in quiet:
            if series.due > now:
                continue
            del self._series[key]
            namespace = series.news.regarding.namespace
            self._shares.give_back(namespace)
            if not self._shares.held(namespace):
                del self._namespaces[namespace]

    def _in_turn(self, with_news: list[_Series]) -> _Series:
        """Return the oldest of these series in the next namespace."""
        firsts: dict[str, _Series] = {}
        for series in with_news:
            firsts.setdefault(series.news.regarding.namespace, series)
        turn = next(each for each in self._namespaces if each in firsts)
        self._namespaces.move_to_end(turn)
        return firsts[turn]

    async def _write(self, series: _Series) -> None:
        """Post a series, or its new count."""
        counted, path = series.count, collection(series.news.regarding.namespace)
        try:
            if series.posted == 0:
                await self._api.request("POST", path, self._event(series))
            else:
                await self._api.request(
                    "PATCH",
                    f"{path}/{series.event_name}",
                    {"series": series.counted()},
                    content_type=port.MERGE_PATCH,
                )
        except errors.ApiError as error:
            _log.warning("an Event was dropped", reason=series.news.reason, error=str(error))
        series.posted = counted
        series.due = self._clock.monotonic() + WINDOW_SECONDS

    def _event(self, series: _Series) -> dict[str, Any]:
        news = series.news
        event: dict[str, Any] = {
            "metadata": {"name": series.event_name, "namespace": news.regarding.namespace},
            "eventTime": times.micro_time_text(series.first_us),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": news.action[:128],
            "reason": news.reason[:128],
            "regarding": news.regarding.reference(),
            "note": news.note[:NOTE_LIMIT],
            "type": "Warning" if news.warning else "Normal",
        }
        if news.related is not None:
            event["related"] = news.related.reference()
        if series.count > 1:
            event["series"] = series.counted()
        return event
