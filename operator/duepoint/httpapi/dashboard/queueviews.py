"""Operations on the queue: how full and how late it is, who works on it, dead letters of Schedules.

Of one namespace for those who may list its Schedules, of the whole queue for those who may list
them everywhere. What is read of the whole is shared for a moment: many may look at a time.

With the verb ``run`` on a Schedule, which running it by hand needs, the same person replays its
letters. Ids can be guessed: who may not see the letters of a namespace gets the answer for letters
that do not exist, and gets it before any of them is looked up, so that the time it takes says
nothing either. Letters of members belong to their sets and are left out: ``httpapi.listing`` has
them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from duepoint.delayqueue import deadletters, delayqueue
from duepoint.httpapi import access, listing, views
from duepoint.httpapi.dashboard import objects
from duepoint.httpapi.dashboard.objects import UserCall
from duepoint.kube import schedules
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
        await objects.check_list(self._rights, asked, namespace)
        await self._queue.layouts.read()
        if namespace is not None:
            return objects.answer(200, await self._of_namespace(namespace))
        async with self._reading:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._until:
                self._whole = await self._of_all()
                self._until = loop.time() + _FRESH_SECONDS
        return objects.answer(200, self._whole)

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


#: Letters that are looked at for the list of all namespaces: those of members are among them.
_MOST_READ: Final = 2_000


class ScheduleLetters:
    """Carries out operations on dead letters of Schedules."""

    def __init__(self, rights: access.Access, queue: delayqueue.DelayQueue) -> None:
        self._rights = rights
        self._queue = queue

    async def list(self, asked: UserCall) -> HttpResponse:
        call = asked.call
        await objects.check_list(self._rights, asked, call.namespace)
        await self._queue.layouts.read()
        page = await self._queue.dead_letters.page(
            call.namespace, limit=call.limit, cursor=call.text("cursor")
        )
        items = [_shown(letter) for letter in page.letters]
        return objects.answer(200, {"items": items, "next": page.cursor})

    async def list_all(self, asked: UserCall) -> HttpResponse:
        """The newest letters of all namespaces."""
        await objects.check_list(self._rights, asked, None)
        limit = asked.call.limit
        await self._queue.layouts.read()
        items: list[dict[str, object]] = []
        read = 0
        async for letter in self._queue.dead_letters.newest():
            read += 1
            if not deadletters.is_of_set(letter.lane):
                items.append(_shown(letter))
            if len(items) == limit or read == _MOST_READ:
                break
        return objects.answer(200, {"items": items, "next": ""})

    async def replay(self, asked: UserCall) -> HttpResponse:
        """Run slots again; what became of each letter by its id."""
        ids = listing.replayed_ids(asked.call)
        if not await objects.may_list(self._rights, asked, asked.call.namespace):
            results = dict.fromkeys(ids, "gone")
        else:
            await self._queue.layouts.read()
            results = {letter_id: await self._replay(asked, letter_id) for letter_id in ids}
        counts = Counter(results.values())
        missing = [letter_id for letter_id, result in results.items() if result != "replayed"]
        return objects.answer(
            200, {"replayed": counts["replayed"], "missing": missing, "results": results}
        )

    async def _replay(self, asked: UserCall, letter_id: str) -> str:
        """What became of a letter, in a word."""
        letter = await self._queue.dead_letters.find(letter_id, asked.call.namespace)
        if letter is None:
            return "gone"
        name = letter.entry.get("name", "")
        wanted = objects.attributes("run", schedules.PLURAL, asked.call.namespace, name)
        if not await self._rights.may(asked.caller, wanted):
            return "forbidden"
        answer = await self._queue.dead_letters.replay(letter)
        return deadletters.Replayed.APPLIED.value if answer in listing.REPLAYED else answer.value


def _shown(letter: deadletters.DeadEntry) -> dict[str, object]:
    return {**listing.shown(letter), "namespace": letter.entry.get("namespace", "")}
