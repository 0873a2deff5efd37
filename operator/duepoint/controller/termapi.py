"""The API server as one term of a leader has it: it writes only while the Lease is trusted.

A process that stood still wakes up as the former leader, and its event loop runs what was due
before it hears that the term is over. What it would write then may replace what its successor has
written, and nothing would correct it: the successor takes its own write for the published state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping

from duepoint.kube import errors, port
from duepoint.kube.port import ItemT


class TermApi:
    """Passes everything on; refuses writes once the term is over.

    Args:
        is_held: whether the process may act as the leader, by the clock and not by what the event
            loop has noticed.
    """

    def __init__(self, api: port.Api, is_held: Callable[[], bool]) -> None:
        self._api = api
        self._is_held = is_held

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = port.JSON,
        accept: str = port.JSON,
        timeout_seconds: float = port.REQUEST_TIMEOUT_SECONDS,
        purpose: port.Purpose = port.Purpose.REQUEST,
    ) -> bytes:
        """As ``port.Api`` has it. Unavailable, and nothing is sent: a write after the term."""
        if verb != "GET" and not self._is_held():
            raise errors.Unavailable(
                f"{verb} {path}: this process is no longer the leader", sent=False
            )
        return await self._api.request(
            verb,
            path,
            body,
            query=query,
            content_type=content_type,
            accept=accept,
            timeout_seconds=timeout_seconds,
            purpose=purpose,
        )

    def list_pages(
        self,
        path: str,
        item_type: type[ItemT],
        *,
        limit: int = port.PAGE_LIMIT,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.ListPage[ItemT]]:
        """As ``port.Api`` has it."""
        return self._api.list_pages(path, item_type, limit=limit, query=query)

    def watch(
        self,
        path: str,
        item_type: type[ItemT],
        resource_version: str,
        *,
        query: Mapping[str, str] | None = None,
    ) -> AsyncIterator[port.WatchEvent[ItemT]]:
        """As ``port.Api`` has it."""
        return self._api.watch(path, item_type, resource_version, query=query)
