"""A watch of the API server in a thread of its own, independent of the product's client."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.controlplane import ControlPlane

_TIMEOUT_SECONDS = 10.0
_PAUSE_SECONDS = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A change; ``kind`` is ``ADDED``, ``MODIFIED`` or ``DELETED``."""

    kind: str
    item: dict[str, Any]


class Watch:
    """Calls ``on_change`` for each existing object and then for each change, in order.

    Args:
        on_gap: called with a text if the server no longer knows what happened in between.
    """

    def __init__(
        self,
        plane: ControlPlane,
        path: str,
        on_change: Callable[[Change], None],
        on_gap: Callable[[str], None],
    ) -> None:
        self._address = urllib.parse.urlsplit(plane.server).netloc
        self._token = plane.admin_token
        self._tls = ssl.create_default_context(cafile=str(plane.ca_file))
        self._path = path
        self._on_change = on_change
        self._on_gap = on_gap
        self._version = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(timeout=2 * _TIMEOUT_SECONDS)

    def _run(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                if not self._version:
                    self._list()
                self._follow()
            self._over.wait(_PAUSE_SECONDS)

    def _list(self) -> None:
        with self._asked({}) as answer:
            listed = json.loads(answer.read())
        for item in listed["items"]:
            self._on_change(Change("ADDED", item))
        self._version = listed["metadata"]["resourceVersion"]

    def _follow(self) -> None:
        query = {
            "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "60",
            "resourceVersion": self._version,
        }  # fmt: skip
        with self._asked(query) as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    self._on_gap(f"{self._path}: {event['object'].get('message')}")
                    self._version = ""
                    return
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._on_change(Change(event["type"], event["object"]))
                if self._over.is_set():
                    return

    @contextlib.contextmanager
    def _asked(self, query: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(
            self._address, timeout=_TIMEOUT_SECONDS, context=self._tls
        )
        try:
            target = f"{self._path}?{urllib.parse.urlencode(query)}"
            connection.request("GET", target, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            if answer.status == 410:
                self._on_gap(f"{self._path}: 410")
                self._version = ""
            if answer.status != 200:
                raise OSError(f"{self._path}: {answer.status}")
            yield answer
        finally:
            connection.close()
