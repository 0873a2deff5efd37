"""The load of the coming days: how many slots each hour and its worst minute have.

All Schedules that the caller may list are read, page by page, and counted in a thread beside the
event loop. That takes seconds of CPU for tens of thousands of them, so one forecast is made at a
time, further ones wait within bounds, and an answer is kept for its caller for a while.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from duepoint import clock as clocks
from duepoint import errors
from duepoint.expressions import timezones
from duepoint.httpapi import access, views
from duepoint.httpapi.dashboard import objects
from duepoint.httpapi.dashboard.objects import UserCall
from duepoint.httpapi.problems import OperationProblem
from duepoint.kube import schedules
from duepoint.net.requests import HttpResponse
from duepoint.schedules import load

MOST_DAYS: Final = 14
USUAL_DAYS: Final = 7
_DAY_MINUTES: Final = 1_440
_WORST: Final = 5
_INSIDE: Final = 5
_MOST_KEPT: Final = 50
_KEPT_SECONDS: Final = 60.0
_MOST_WAITING: Final = 8


class Forecasts:
    """Carries out the forecast."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._kept: access.Remembered[tuple[object, ...], dict[str, Any]] = access.Remembered(
            _MOST_KEPT, access.Times(granted=_KEPT_SECONDS, refused=_KEPT_SECONDS)
        )

    async def forecast(self, asked: UserCall) -> HttpResponse:
        namespace, zone = asked.namespace, asked.call.text("timeZone") or "Etc/UTC"
        days = asked.call.whole("days", USUAL_DAYS, MOST_DAYS)
        try:
            timezones.load(zone)
        except errors.InvalidExpression as error:
            raise OperationProblem("InvalidSchedule", str(error), field="timeZone") from None
        key = (asked.caller.key, namespace, days, zone)
        found = await self._kept.find(key, lambda: self._made(asked, namespace, days, zone))
        return objects.answer(200, found)

    async def _made(
        self, asked: UserCall, namespace: str | None, days: int, zone: str
    ) -> dict[str, Any]:
        if self._waiting >= _MOST_WAITING:
            message = "too many forecasts are being made"
            raise OperationProblem("Unavailable", message, retry_after_seconds=5)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._count(asked, namespace, days, zone)
        finally:
            self._waiting -= 1

    async def _count(
        self, asked: UserCall, namespace: str | None, days: int, zone: str
    ) -> dict[str, Any]:
        counting = _Counting(self._clock.now_us(), days * _DAY_MINUTES)
        path = schedules.collection(namespace)
        with objects.refusals():
            async for page in asked.api.list_pages(path, schedules.Schedule):
                await asyncio.to_thread(counting.add, page.items)
        return await asyncio.to_thread(counting.shown, zone)


class _Counting:
    """Counts Schedules; used by one thread at a time."""

    def __init__(self, now_us: int, minutes: int) -> None:
        self._builder = load.ForecastBuilder(now_us - now_us % load.MINUTE_US, minutes)
        self._unread = 0

    def add(self, items: tuple[schedules.Schedule, ...]) -> None:
        for item in items:
            try:
                self._builder.add(schedules.spec_of(item))
            except errors.InvalidSpec:
                self._unread += 1

    def shown(self, zone: str) -> dict[str, Any]:
        known = self._builder.made()
        return {
            "fromTime": views.time(known.from_us),
            "timeZone": zone,
            "schedules": known.schedules,
            "suspended": known.suspended,
            "unread": self._unread,
            "runs": round(known.runs),
            "hours": [
                {
                    "day": hour.day,
                    "hour": hour.hour,
                    "runs": round(hour.runs),
                    "peak": round(hour.peak, 2),
                    "peakTime": views.time(known.at_us(hour.worst)),
                }
                for hour in load.hours(known, zone)
            ],
            "worst": [_minute(known, minute) for minute in _worst(known)],
        }


def _worst(known: load.Forecast) -> list[int]:
    """The worst minutes, one of each hour."""
    found: dict[int, int] = {}
    for minute, count in enumerate(known.minutes):
        hour = known.at_us(minute) // (60 * load.MINUTE_US)
        if count and count > known.minutes[found.setdefault(hour, minute)]:
            found[hour] = minute
    listed = sorted(found.values(), key=lambda minute: (-known.minutes[minute], minute))
    return [minute for minute in listed[:_WORST] if known.minutes[minute]]


def _minute(known: load.Forecast, minute: int) -> dict[str, Any]:
    return {
        "time": views.time(known.at_us(minute)),
        "slots": round(known.minutes[minute], 2),
        "inside": [each.row for each in known.expressions(minute)[:_INSIDE]],
    }
