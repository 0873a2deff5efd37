"""Operations that look into the queue: how full and how late it is, and who works on it.

Of one namespace for those who may list its Schedules, of the whole queue for those who may list
them everywhere. What is read of the whole is shared for a moment: many may look at a time.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from duepoint.delayqueue import delayqueue
from duepoint.httpapi import access, views
from duepoint.httpapi.dashboard import asking, reads
from duepoint.httpapi.dashboard.asking import UserCall
from duepoint.net.requests import HttpResponse

_FRESH_SECONDS: Final = 2.0


class QueueViews:
    """Carries out operations that look into the queue."""

    def __init__(self, rights: access.Access, queue: delayqueue.DelayQueue) -> None:
        self._rights = rights
        self._queue = queue
        self._reading = asyncio.Lock()
        self._whole: dict[str, Any] = {}
        self._until = float("-inf")

    async def queue(self, asked: UserCall) -> HttpResponse:
        namespace = asked.namespace
        await asking.check_list(self._rights, asked, namespace)
        await self._queue.layouts.read()
        if namespace is not None:
            return reads.answer(200, await self._of_namespace(namespace))
        async with self._reading:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._until:
                self._whole = await self._of_all()
                self._until = loop.time() + _FRESH_SECONDS
        return reads.answer(200, self._whole)

    async def _of_namespace(self, namespace: str) -> dict[str, Any]:
        lanes = await self._queue.counts.of_namespace(namespace)
        now_us = self._queue.index.clock.now_us()
        oldest = [lane.oldest_due_us for lane in lanes if lane.oldest_due_us is not None]
        return {
            "points": sum(lane.points for lane in lanes),
            "due": sum(lane.due for lane in lanes),
            "claimed": sum(lane.claimed for lane in lanes),
            "lagSeconds": max(0, now_us - min(oldest, default=now_us)) / 1_000_000,
        }

    async def _of_all(self) -> dict[str, Any]:
        seen = await self._queue.counts.index_view()
        totals = await self._queue.counts.totals()
        promise = await self._queue.durability.read()
        return {
            "points": totals.points,
            "due": totals.due,
            "deadLetters": totals.dead,
            "outcomes": totals.outcomes,
            "lagSeconds": totals.lag_us / 1_000_000,
            "server": seen.server,
            "state": seen.state,
            "shards": seen.layout.shards,
            "term": seen.epoch,
            "memoryUsedBytes": seen.memory_used,
            "memoryLimitBytes": seen.memory_limit,
            "persistence": promise.persistence,
            "replicas": promise.replicas,
            "lossWindow": promise.loss_window,
            "workers": [
                {"name": name, "untilTime": views.time(until_us)} for name, until_us in seen.workers
            ],
            "troubles": [{"worker": name, "message": text} for name, text in seen.troubles],
        }
