"""Operations on the queue: backlog, lag and workers, its forecast, and Schedules' dead letters.

Users who may list the Schedules of a namespace see its part of the queue. Those who may list them
everywhere see the whole queue, from a short-lived cache, because many may look at a time.

A forecast of the coming days counts how many slots each hour and its busiest minute have. It reads
all Schedules that the caller may list, page by page, and counts their slots in a thread. That takes
seconds of CPU for tens of thousands of Schedules. So one forecast runs at a time, and each result
is cached for its caller for a while. A caller's connections bound how many of theirs wait.

Replaying the letters of a Schedule needs the verb ``run`` on it, as running it by hand does. Ids of
letters can be guessed. So a caller who may not see the letters of a namespace gets the answer for
letters that do not exist, and gets it before any look-up, so that the response time reveals nothing
either. Letters of members belong to their sets and are left out: ``httpapi.listing`` has them.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Annotated, Final

from duepoint import errors
from duepoint.delayqueue import deadletters
from duepoint.expressions import timezones
from duepoint.httpapi import access, listing, views
from duepoint.httpapi.calls import Call
from duepoint.httpapi.dashboard import objects
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import schedules
from duepoint.model.answers import Count
from duepoint.model.vocabulary import Fields, Time
from duepoint.net.httpserver import HttpResponse
from duepoint.schedules import load


class SeenWorker(Fields, kw_only=True):
    """A worker, and until when it counts as alive without another sign of life."""

    name: str
    until_time: Time | None


class Trouble(Fields, kw_only=True):
    """A problem that a worker reports."""

    worker: str
    message: str


class QueueView(Fields, kw_only=True, omit_defaults=True):
    """The queue; of one namespace only points, due, claimed and lagSeconds."""

    points: Annotated[Count, "that wait"]
    due: Annotated[Count, "of these, due and not claimed"]
    lag_seconds: Annotated[float, "how long the oldest has been due"]
    claimed: Annotated[Count | None, "of a namespace: that workers have claimed"] = None
    dead_letters: Count | None = None
    outcomes: Annotated[Count | None, "that no status shows yet"] = None
    server: str = ""
    state: str = ""
    shards: Count = 0
    term: Count | None = None
    memory_used_bytes: Count | None = None
    memory_limit_bytes: Annotated[Count | None, "0 = none"] = None
    persistence: str = ""
    replicas: Count | None = None
    loss_window: str = ""
    workers: tuple[SeenWorker, ...] | None = None
    troubles: tuple[Trouble, ...] | None = None


async def queue(call: Call) -> HttpResponse:
    namespace = objects.namespace_of(call)
    await objects.check_list(call, namespace)
    await call.shared.queue.layouts.read()
    if namespace is None:
        return objects.answer(200, await call.shared.whole.find(None, lambda: _of_all(call)))
    lanes = await call.shared.queue.inspection.of_namespace(namespace)
    now_us = call.shared.queue.index.clock.now_us()
    oldest = [lane.first_due_us for lane in lanes if lane.first_due_us is not None]
    view = QueueView(
        points=sum(lane.points for lane in lanes),
        due=sum(lane.due for lane in lanes),
        claimed=sum(lane.claimed for lane in lanes),
        lag_seconds=max(0, now_us - min(oldest, default=now_us)) / 1_000_000,
    )
    return objects.answer(200, view)


async def _of_all(call: Call) -> QueueView:
    stored = call.shared.queue
    seen = await stored.inspection.index_view()
    totals = await stored.inspection.totals()
    promise = await stored.health.durability()
    return QueueView(
        points=totals.points,
        due=totals.due,
        dead_letters=totals.dead,
        outcomes=totals.outcomes,
        lag_seconds=totals.lag_us / 1_000_000,
        server=seen.server,
        state=seen.state,
        shards=seen.layout.shards,
        term=seen.epoch,
        memory_used_bytes=seen.memory_used,
        memory_limit_bytes=seen.memory_limit,
        persistence=promise.persistence,
        replicas=promise.replicas,
        loss_window=promise.loss_window,
        workers=tuple(
            SeenWorker(name=name, until_time=views.time(until_us))
            for name, until_us in seen.workers
        ),
        troubles=tuple(Trouble(worker=name, message=text) for name, text in seen.troubles),
    )


# -- the coming days -----------------------------------------------------------------------------

MOST_DAYS: Final = 14
USUAL_DAYS: Final = 7
_DAY_MINUTES: Final = 1_440
_WORST: Final = 5


class Forecast(Fields, kw_only=True):
    """The load of the coming days."""

    time_zone: str
    schedules: Annotated[Count, "that were counted"]
    suspended: Annotated[Count, "of these, without a slot because they are suspended"]
    unread: Annotated[Count, "whose spec this version cannot read"]
    runs: Count
    hours: tuple[load.HourLoad, ...]
    worst: tuple[load.MinuteLoad, ...]


async def forecast(call: Call) -> HttpResponse:
    namespace, zone = objects.namespace_of(call), call.text("timeZone") or "Etc/UTC"
    days = call.whole("days", USUAL_DAYS, MOST_DAYS)
    try:
        timezones.load(zone)
    except errors.InvalidExpression as error:
        raise OperationProblem("InvalidSchedule", str(error), field="timeZone") from None
    key = (call.caller.key, namespace, days, zone)
    made = await call.shared.forecasts.find(key, lambda: _made(call, namespace, days, zone))
    return objects.answer(200, made)


async def _made(call: Call, namespace: str | None, days: int, zone: str) -> Forecast:
    """Make a forecast once it is this caller's turn."""
    async with access.place_of(call.caller.asker, call.shared.forecast_turns):
        coming, unread = load.Forecast(call.shared.clock.now_us(), days * _DAY_MINUTES), 0
        path = schedules.collection(namespace)
        with objects.refusals():
            async for page in call.api.list_pages(path, schedules.Schedule):
                unread += await asyncio.to_thread(_add, coming, page.items)
        return await asyncio.to_thread(_shown, coming, unread, zone)


def _add(coming: load.Forecast, items: tuple[schedules.Schedule, ...]) -> int:
    """Count the slots of Schedules; return how many Schedules cannot be read."""
    unread = 0
    for item in items:
        try:
            coming.add(schedules.spec_of(item))
        except errors.InvalidSpec:
            unread += 1
    return unread


def _shown(coming: load.Forecast, unread: int, zone: str) -> Forecast:
    return Forecast(
        time_zone=zone,
        schedules=coming.schedules,
        suspended=coming.suspended,
        unread=unread,
        runs=round(coming.runs),
        hours=tuple(coming.hours(zone)),
        worst=tuple(coming.worst(_WORST)),
    )


# -- dead letters of Schedules ---------------------------------------------------------------------

#: Most letters to read for the list of all namespaces; those of members are among them.
_MOST_READ: Final = 2_000


async def letters(call: Call) -> HttpResponse:
    """List dead letters, newest first: a page of a namespace's, or the newest of all."""
    namespace, limit = objects.namespace_of(call), call.limit
    await objects.check_list(call, namespace)
    await call.shared.queue.layouts.read()
    if namespace is not None:
        return objects.answer(200, await listing.letters_of(call, namespace))
    items: list[dict[str, object]] = []
    read = 0
    async for letter in call.shared.queue.dead_letters.newest(cursor=call.text("cursor")):
        read += 1
        if not deadletters.is_of_set(letter.lane):
            items.append(listing.shown(letter))
        if len(items) == limit or read == _MOST_READ:
            break
    return objects.answer(200, {"items": items, "next": ""})


async def replay(call: Call) -> HttpResponse:
    """Replay dead letters; the answer has a result for each id."""
    ids = listing.replayed_ids(call)
    may_run = functools.partial(objects.may, call, "run", call.namespace)
    if not await objects.may(call, "list", call.namespace):
        results = dict.fromkeys(ids, "gone")
    else:
        await call.shared.queue.layouts.read()
        results = {
            letter_id: await listing.replay_letter(call, letter_id, call.namespace, may_run)
            for letter_id in ids
        }
    return objects.answer(200, listing.replayed(results))
