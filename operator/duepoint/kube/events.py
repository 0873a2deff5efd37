"""The recorder of Kubernetes Events: posts each piece of news once, and limits their rate.

``note`` returns at once; ``run`` posts what was noted. The same reason about the same object is
posted once in five minutes: an Event is news and not a record, because status and ledger are. The
recorder posts at most 20 Events a second. Namespaces take turns, and a bounded number may wait in
each: a namespace where everything fails drops its own Events, and does not delay those of
others. Events that the API server does not take are dropped, too.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections import deque
from dataclasses import dataclass
from typing import Any

import structlog

from duepoint import clock as clocks
from duepoint.kube import errors, port, schedules, times

_log = structlog.get_logger(__name__)

WINDOW_SECONDS = 300.0
MOST_PER_SECOND = 20
#: For each namespace.
MOST_WAITING = 100
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


class Recorder:
    """Collects and posts Events. ``component`` is the reportingController, without its group."""

    def __init__(self, api: port.Api, clock: clocks.Clock, component: str) -> None:
        self._api = api
        self._clock = clock
        self._controller = f"{schedules.GROUP}/{component}"
        self._instance = socket.gethostname()[:128] or component
        #: When news of an object and a reason was noted last, oldest first.
        self._noted: dict[tuple[str, str], float] = {}
        #: Waiting Events by namespace, with the time of each; the first namespace is next.
        self._waiting: dict[str, deque[tuple[Event, int]]] = {}
        self._news = asyncio.Event()

    def note(self, news: Event) -> None:
        """Queue an Event unless its news is known or too many wait; never waits and never fails."""
        now, key = self._clock.monotonic(), (news.regarding.uid, news.reason)
        while self._noted and next(iter(self._noted.values())) <= now - WINDOW_SECONDS:
            del self._noted[next(iter(self._noted))]
        namespace = news.regarding.namespace
        waiting = self._waiting.get(namespace, deque())
        if key not in self._noted and len(waiting) < MOST_WAITING:
            self._noted[key] = now
            self._waiting[namespace] = waiting
            waiting.append((news, self._clock.now_us()))
            self._news.set()

    async def run(self) -> None:
        """Post until cancelled."""
        while True:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
            namespace = next(iter(self._waiting))
            waiting = self._waiting.pop(namespace)
            news, at_us = waiting.popleft()
            if waiting:
                self._waiting[namespace] = waiting
            try:
                await self._api.request("POST", collection(namespace), self._event(news, at_us))
            except errors.ApiError as error:
                _log.warning("an Event was dropped", reason=news.reason, error=str(error))
            await self._clock.sleep(1 / MOST_PER_SECOND)

    def _event(self, news: Event, at_us: int) -> dict[str, Any]:
        begin = news.regarding.name[:200].rstrip(".-")  # a part of a name ends in neither
        event: dict[str, Any] = {
            "metadata": {
                "name": f"{begin}.{secrets.token_hex(8)}",
                "namespace": news.regarding.namespace,
            },
            "eventTime": times.micro_time_text(at_us),
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
        return event
