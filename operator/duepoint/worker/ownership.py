"""Keeps a worker to the points of its own cluster.

Points create Jobs through the API server that this worker talks to. If its Redis holds the index of
another cluster, the worker would create those Jobs in the wrong one. So before it claims, it asks
its API server which cluster this is, and the queue refuses the index of any other. An API server
that does not answer delays no webhook and no stream: the worker claims meanwhile, goes on asking,
and touches no Job until it knows. A worker whose account may not ask claims nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from duepoint import errors, services, telemetry
from duepoint.clock import Clock
from duepoint.delayqueue import layouts
from duepoint.delayqueue.delayqueue import DelayQueue
from duepoint.kube import errors as kube_errors
from duepoint.kube import installation, port

#: How long the first claim waits for the API server's answer.
PATIENCE_SECONDS = 3.0


class Ownership:
    """Finds out which cluster this worker belongs to; one for the worker's life.

    Args:
        namespace: that of this installation.
    """

    def __init__(self, api: port.Api, queue: DelayQueue, clock: Clock, *, namespace: str) -> None:
        self._api = api
        self._queue = queue
        self._clock = clock
        self._namespace = namespace
        self._identifying = asyncio.Lock()
        self._is_identified = False
        self._is_ours = False

    async def before_claims(self) -> None:
        """Wait until the worker may claim; raises Unidentified if its account may not ask.

        Reading the layout then checks whether the index belongs to this cluster.
        """
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._identify()
        except (kube_errors.ApiError, TimeoutError) as trouble:
            telemetry.logger.warning(
                "claiming before the owner of the index is known; Jobs wait", error=str(trouble)
            )

    async def run(self) -> None:
        """Ask until the API server has answered."""
        waits = services.backoff(first_seconds=1.0, most_seconds=10.0)
        while not self._is_identified:
            await self._clock.sleep(next(waits))
            try:
                await self._identify()
            except (kube_errors.ApiError, installation.Unidentified):
                continue

    async def require(self) -> None:
        """Check that the index is of this cluster; raises kube_errors.Unavailable otherwise."""
        if self._is_ours:
            return
        try:
            await self._identify()
            await self._queue.layouts.read()
        except kube_errors.ApiError:
            raise
        except errors.TryLater as trouble:
            raise kube_errors.Unavailable(str(trouble), sent=False) from trouble
        self._is_ours = True

    async def _identify(self) -> None:
        async with self._identifying:
            if self._is_identified:
                return
            found = await installation.identity(self._api, self._namespace)
            self._queue.layouts.belong_to(layouts.Owner(cluster=found.cluster, home=found.home))
            self._is_identified = True


class OwnJobs:
    """``port.Api`` for Jobs: sends no request before the index is known to be ours."""

    def __init__(self, api: port.Api, owned: Ownership) -> None:
        self._api = api
        self._owned = owned

    async def request(self, *parts: Any, **options: Any) -> bytes:  # noqa: ANN401 - as port.Api has them
        """See ``port.Api.request``."""
        await self._owned.require()
        return await self._api.request(*parts, **options)

    async def list_pages(self, *parts: Any, **options: Any) -> AsyncIterator[port.ListPage[Any]]:  # noqa: ANN401
        """See ``port.Api.list_pages``."""
        await self._owned.require()
        async for page in self._api.list_pages(*parts, **options):
            yield page

    def watch(self, *parts: Any, **options: Any) -> AsyncIterator[port.WatchEvent[Any]]:  # noqa: ANN401
        """See ``port.Api.watch``; a worker watches nothing."""
        return self._api.watch(*parts, **options)
