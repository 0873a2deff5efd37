"""Forecasts of the coming days: how many slots each hour and its busiest minute have.

A forecast reads all Schedules that the caller may list, page by page, and counts their slots in a
thread. That takes seconds of CPU for tens of thousands of Schedules. So one forecast runs at a
time, and each result is cached for its caller for a while. A caller's connections bound how many of
theirs wait.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from duepoint import errors
from duepoint.expressions import timezones
from duepoint.httpapi.calls import Call
from duepoint.httpapi.dashboard import objects
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import schedules
from duepoint.model.answers import Count
from duepoint.model.vocabulary import Fields
from duepoint.net.httpserver import HttpResponse
from duepoint.schedules import load

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
    turns, asker = call.shared.forecast_turns, call.caller.asker
    await turns.wait(asker)
    try:
        coming, unread = load.Forecast(call.shared.clock.now_us(), days * _DAY_MINUTES), 0
        path = schedules.collection(namespace)
        with objects.refusals():
            async for page in call.api.list_pages(path, schedules.Schedule):
                unread += await asyncio.to_thread(_add, coming, page.items)
        return await asyncio.to_thread(_shown, coming, unread, zone)
    finally:
        turns.leave(asker)


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
